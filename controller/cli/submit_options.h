#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "jobfile/sweep.h"

namespace cli {

struct SubmitOptions {
  std::string file;  // "-": standard input
  std::int64_t like = 0;
  std::vector<std::string> set, env, after, sweep;
  std::string name, executor;
  std::uint32_t parallel = 0;
  bool hold = false;
  bool print_script = false;
  bool check = false;
  bool wait = false;
  bool follow = false;
  bool json = false;
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

}  // namespace cli
