#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "base/command.h"
#include "slurm/scheduler.h"

namespace slurm {

/// Where Slurm's commands are and how long each may take.
struct ClientOptions {
  std::string conf{};  // SLURM_CONF for every command; empty: Slurm's default
  /// Put before each command's name, such as "/opt/slurm/bin/". Empty: commands are found in PATH.
  std::string programs{};
  std::chrono::milliseconds submit_limit{30'000};  // sbatch retries for a while when slurmctld is busy
  /// Must be longer than Slurm's MessageTimeout (10 s by default). A busy slurmctld still answers within
  /// MessageTimeout. A shorter limit would make such a cluster look unreachable for ever. While a query runs, the
  /// controller has no newer listing to act on.
  std::chrono::milliseconds list_limit{20'000};
  std::chrono::milliseconds change_limit{15'000};   // scancel, scontrol update and the like
  std::chrono::milliseconds history_limit{30'000};  // sacct
  /// Longer lists of ids become several commands. For scancel, all elements of one array count as one id.
  std::size_t ids_per_command = 500;
  /// The separator between the fields that squeue and sacct print. Empty: each query uses a new random separator, so
  /// that no job's name or comment can contain it. Tests with prepared answers set it.
  std::string separator{};
};

/// Talks to Slurm through its commands. Variables of this process such as SLURM_*, SBATCH_* and SQUEUE_* do not reach
/// the commands, so the client also works inside a Slurm job. squeue prints each requested field, and times as seconds
/// since 1970. Names and comments may contain anything.
///
/// [Note: refused or unreachable] These failures are Unreachable: "Unable to contact slurm controller", "Socket timed
/// out", "Zero Bytes were transmitted or received", a munge that is down, a time limit, and a missing program. Any
/// other failure is Slurm's refusal. submit() is stricter. A submission is Unreachable only when it cannot have reached
/// slurmctld. A submission is Refused only when sbatch's own words prove that nothing was accepted (see Refusal). All
/// other failed submissions are Unsure.
class Client : public Scheduler {
 public:
  /// The runner must outlive the client.
  Client(base::CommandRunner& runner, ClientOptions options);

  SubmitAnswer submit(const std::string& script, const std::vector<std::string>& arguments = {},
                      const std::vector<int>& keep_fds = {},
                      const std::map<std::string, std::string>& environment = {}) override;
  Answer<StartEstimate> test_only(const std::string& script) override;
  Answer<std::vector<ListedJob>> list(const std::string& user = {}) override;
  Answer<std::vector<ListedJob>> find(std::uint64_t job) override;
  Answer<Done> cancel(const std::vector<JobId>& jobs) override;
  Answer<Done> hold(const JobId& job) override;
  Answer<Done> release(const JobId& job) override;
  Answer<Done> update_time_limit(const JobId& job, std::chrono::minutes limit) override;
  Answer<Done> exclude(const JobId& job, const std::vector<std::string>& nodes) override;
  Answer<std::vector<PastRun>> history(const std::vector<std::uint64_t>& jobs) override;
  Answer<std::vector<Partition>> partitions() override;
  Answer<std::vector<Node>> nodes() override;
  Answer<ClusterConfig> config() override;

 private:
  base::Command command(const std::string& program, std::vector<std::string> arguments,
                        std::chrono::milliseconds limit) const;
  Answer<std::string> ask(const std::string& program, std::vector<std::string> arguments,
                          std::chrono::milliseconds limit);
  Answer<Done> change(const std::string& program, std::vector<std::string> arguments);

  base::CommandRunner& runner_;
  ClientOptions options_;
};

}  // namespace slurm
