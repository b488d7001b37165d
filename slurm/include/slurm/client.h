#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "slurm/command.h"
#include "slurm/scheduler.h"

namespace slurm {

/// Where Slurm's commands are and how long each may take.
struct ClientOptions {
  std::string conf{};  // SLURM_CONF for every command; empty: Slurm's default
  /// Put before each command's name: "/opt/slurm/bin/"; empty: found in PATH.
  std::string programs{};
  std::chrono::milliseconds submit_limit{30'000};  // sbatch itself retries for a while when slurmctld is busy
  /// Longer than Slurm's MessageTimeout (10 s by default): a slurmctld that is busy, rather than gone, still answers
  /// within it, and a shorter limit would find such a cluster unreachable for ever. Until it is over nobody acts on a
  /// listing.
  std::chrono::milliseconds list_limit{20'000};
  std::chrono::milliseconds change_limit{15'000};   // scancel, scontrol update and the like
  std::chrono::milliseconds history_limit{30'000};  // sacct
  std::size_t ids_per_command =
      500;  // longer lists become several commands; of scancel, an array's elements are one id
  /// Between the fields that squeue and sacct print. Empty: another random one for each query, so that no job's name or
  /// comment can hold it. Tests with prepared answers set it.
  std::string separator{};
};

/// Slurm through its commands. None of our SLURM_*, SBATCH_*, SQUEUE_* and such variables reach them, so it works
/// inside a Slurm job too. What squeue prints is asked for field by field, times as seconds since 1970; names and
/// comments may hold anything.
///
/// Refused or Unreachable? "Unable to contact slurm controller", "Socket timed out", "Zero Bytes were transmitted or
/// received", a munge that is down, a time limit and a program that is missing are Unreachable; any other failure is
/// Slurm's word. For submit, only what cannot have reached slurmctld is Unreachable, and only what proves that nothing
/// was taken is Refused (see Refusal). Both take words that sbatch itself has written. All other failures are Unsure.
class Client : public Scheduler {
 public:
  /// The runner must outlive the client.
  Client(CommandRunner& runner, ClientOptions options);

  SubmitAnswer submit(const std::string& script, const std::vector<std::string>& arguments = {},
                      const std::vector<int>& keep_fds = {},
                      const std::map<std::string, std::string>& environment = {}) override;
  Answer<StartEstimate> test_only(const std::string& script, const std::vector<std::string>& arguments = {}) override;
  Answer<std::vector<ListedJob>> list(const std::string& user = {}) override;
  Answer<std::vector<ListedJob>> find(std::uint64_t job) override;
  Answer<Done> cancel(const std::vector<JobId>& jobs, const Cancel& how = {}) override;
  Answer<Done> hold(const JobId& job) override;
  Answer<Done> release(const JobId& job) override;
  Answer<Done> update_time_limit(const JobId& job, std::chrono::minutes limit) override;
  Answer<Done> exclude(const JobId& job, const std::vector<std::string>& nodes) override;
  Answer<std::vector<PastRun>> history(const std::vector<std::uint64_t>& jobs) override;
  Answer<std::vector<Partition>> partitions() override;
  Answer<std::vector<Node>> nodes() override;
  Answer<ClusterConfig> config() override;

 private:
  Command command(const std::string& program, std::vector<std::string> arguments,
                  std::chrono::milliseconds limit) const;
  Answer<std::string> ask(const std::string& program, std::vector<std::string> arguments,
                          std::chrono::milliseconds limit);
  Answer<Done> change(const std::string& program, std::vector<std::string> arguments);

  CommandRunner& runner_;
  ClientOptions options_;
};

}  // namespace slurm
