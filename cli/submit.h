#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/cli_command.h"
#include "cli/follow.h"
#include "spec/jobfile/sweep.h"

namespace cli {

struct SubmitOptions {
  std::string command = "submit";  // that reads the job file
  std::string file;                // "-": standard input; empty: the arguments after "--" are the command
  std::vector<std::string> words;  // after the file: arguments of a script for sbatch
  std::int64_t like = 0;
  std::vector<std::string> set, env, after, sweep;
  std::string name, executor, sweep_settings;
  std::string partition, nodes, ranks, gpus, time;  // as sbatch has them
  std::uint32_t parallel = 0;
  bool hold = false, force = false, print_script = false, check = false, wait = false, follow = false, json = false;
};

/// The jobs that a job file and the options describe.
struct Request {
  std::vector<muster::v1::JobSpec> specs;  // one job, or the jobs of a sweep
  bool is_sweep = false;
  std::uint32_t parallel = 0;
  std::int64_t like = 0;  // the job whose settings were copied; 0: a job file was read
};
/// Reads and checks the request. If it has problems, prints each on stderr and returns nullopt. Each problem begins
/// with its file, line and column, so that editors can jump there.
std::optional<Request> read_request(Session& session, const SubmitOptions& options);

/// Throws a Failure if a job of the request does not fit into the memory of its ranks, by its plan. Jobs are planned
/// that train a recipe, have fsdp.check_memory and known memory, and of equal ones the first; at most kMostPlanned. A
/// job that cannot be planned passes: its ranks judge it.
void refuse_misfits(const Request& request, bool here);
inline constexpr std::size_t kMostPlanned = 16;

/// Runs a job with executor = "debug": all ranks run here, in the foreground, without a controller. Returns the exit
/// code for muster: that of the first rank that failed, or 128 + the signal if a signal ended it.
///
/// Rank 0 has this terminal. The output of the other ranks goes to stderr, and each line begins with its rank. When a
/// rank fails, the others are asked to leave, and killed after resources.stop_grace. Ctrl-C goes to the ranks. The
/// ranks get the same environment and files as in an attempt. The attempt's folder is temporary and is removed at the
/// end. At the end stderr says what each rank has reported. The time limit and requeue do not apply. Throws a Failure
/// if a rank could not be started. See debug_run.cpp.
int run_in_foreground(const muster::v1::JobSpec& spec);

/// The facts about a submission's tries so far.
struct Tries {
  Contact::Clock::time_point deadline;
  bool told = false;            // the person was told that muster tries again
  bool maybe_accepted = false;  // an answer was lost, so the controller may have accepted the call
};

/// Handles a failed try: waits a moment, or throws a failure that another try cannot repair.
void ask_again(Client& client, const grpc::Status& status, Tries& tries);

}  // namespace cli
