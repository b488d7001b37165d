#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "slurm/answer.h"
#include "slurm/slurm_job.h"

namespace slurm {

using Time = std::chrono::sys_seconds;  // whole seconds of the clock of slurmctld's machine

/// How a job or step ended.
struct ExitStatus {
  int code = 0;
  int signal = 0;  // 0: none

  bool operator==(const ExitStatus&) const = default;
};

/// One job, or one element of an array, as squeue lists it now.
struct ListedJob {
  JobId id{};  // "123_4" for an array element
  ListedState state{};
  std::string reason{};        // "Priority", "None"; see explain_reason
  std::string node_list{};     // see expand_hosts; empty while queued
  std::uint32_t restarts = 0;  // how often Slurm itself restarted the job
  std::optional<Time> submitted{};
  std::optional<Time> started{};  // for a queued job: the expected start
  std::optional<Time> ends{};     // the end, or the end that the time limit sets
  std::optional<Time> preempted{};
  std::optional<std::chrono::seconds> time_limit{};  // none: unlimited
  /// The exit status of the batch script, once the job has ended. A job that waits again keeps the status of its last
  /// run if that status is the reason (RequeueExit). After `scontrol requeue` and the like it has none.
  std::optional<ExitStatus> exit{};
  std::uint64_t priority = 0;  // 0: held
  std::string dependency{};    // the unfulfilled part: "afterok:12(unfulfilled)"
  std::string comment{};
  std::string work_folder{};  // the job's working folder; set only by find()
};

/// One run of a job as accounting recorded it. A requeued job has several runs.
struct PastRun {
  JobId id{};
  ListedState state{};
  ExitStatus exit{};
  std::optional<Time> submitted{};
  std::optional<Time> started{};  // none: the run never started
  std::optional<Time> ended{};
  std::string node_list{};
  std::string comment{};  // empty unless the cluster keeps comments (AccountingStoreFlags=job_comment)
};

/// A partition as Slurm reports it.
struct Partition {
  std::string name{};
  std::string state{};  // UP, DOWN, DRAIN, INACTIVE
  bool is_default = false;
  std::string node_list{};
  std::uint32_t total_nodes = 0;
  std::uint32_t total_cpus = 0;
  std::optional<std::chrono::seconds> max_time{};      // none: unlimited
  std::optional<std::chrono::seconds> default_time{};  // none: max_time
  std::optional<std::uint32_t> max_nodes{};            // none: unlimited
  std::vector<std::string> allow_groups{};             // empty: all
  std::vector<std::string> allow_accounts{};           // empty: all
  std::vector<std::string> allow_qos{};                // empty: all
  std::uint32_t priority_tier = 0;
  std::string preempt_mode{};  // OFF, REQUEUE, CANCEL, SUSPEND, GANG,...
  std::chrono::seconds grace{0};
};

/// A node as Slurm reports it.
struct Node {
  std::string name{};
  std::string address{};  // NodeAddr: the address to connect to, since names need not resolve
  /// The base state, then the flags that Slurm joins with +: "IDLE", "DRAIN". Suffixes such as * are removed.
  std::vector<std::string> states{};
  bool responds = true;  // false: Slurm marks it with *
  std::string reason{};  // why the node is down or drained: "power supply [root@2026-11-21T09:00:00]"
  std::uint32_t cpus = 0;
  std::uint32_t cpus_used = 0;
  std::uint64_t memory_mib = 0;
  std::uint64_t memory_used_mib = 0;  // allocated to jobs
  std::string gres{};                 // "gpu:fake:2"
  std::string tres_used{};            // "cpu=1,gres/gpu=1"
  std::vector<std::string> partitions{};
  std::map<std::string, std::string> fields{};  // all fields that Slurm printed, by Slurm's names

  /// The value of one of these; empty: Slurm has not printed it.
  std::string field(const std::string& key) const;
  /// True if the node is up, and neither drained nor about to be drained. Jobs may start on it now or when others
  /// leave.
  bool usable() const;
  /// True if Slurm calls the node down, or has no answer from it.
  bool is_down() const;
  /// True if Slurm calls the node powered up, so that its slurmd takes connections.
  bool should_answer() const;
  /// True if Slurm has drained the node because it could not start a job.
  bool failed_a_launch() const;
  /// `reason` without the user and the time: "power supply".
  std::string why() const;
  /// When the reason was given; none: the reason does not say.
  std::optional<Time> why_since() const;
};

/// A cluster's configuration.
struct ClusterConfig {
  std::optional<Time> now{};                    // slurmctld's clock at the time of the answer
  std::uint64_t max_array_size = 1001;          // task ids are below this
  std::map<std::string, std::string> fields{};  // all that Slurm printed, by Slurm's names

  /// The value of one of these; empty: Slurm has not printed it.
  std::string field(const std::string& key) const;
};

/// When and where a job would start.
struct StartEstimate {
  std::optional<Time> start{};
  std::uint32_t cpus = 0;
  std::string node_list{};
  std::string partition{};
};

/// Everything that muster asks of Slurm. Each call ends within its own time limit and never throws for what Slurm does.
/// May be called from several threads.
class Scheduler {
 public:
  virtual ~Scheduler() = default;

  /// Submits a script through sbatch. `arguments` come before the script ("--hold"). sbatch keeps keep_fds open while
  /// it runs. A lock on one of them then tells a restarted controller whether a submission may still be in progress.
  /// The job's environment is `environment` plus what Slurm adds. PATH is extended when it does not lead to srun.
  virtual SubmitAnswer submit(const std::string& script, const std::vector<std::string>& arguments = {},
                              const std::vector<int>& keep_fds = {},
                              const std::map<std::string, std::string>& environment = {}) = 0;

  /// Asks whether Slurm would accept the script, and when the job would start. Nothing is submitted.
  virtual Answer<StartEstimate> test_only(const std::string& script) = 0;

  /// Every job that Slurm still lists, including ended jobs, with array elements one by one. Makes one query. `user`
  /// selects one user's jobs; empty means all users. An empty list means that there are no jobs. An answer that cannot
  /// be parsed is Unreachable.
  virtual Answer<std::vector<ListedJob>> list(const std::string& user = {}) = 0;

  /// The job with this number, or all elements of the array with this number. scontrol asks slurmctld itself, without
  /// any squeue wrapper or cache in between. An empty list means that slurmctld does not know the number. Fills id,
  /// state, reason, restarts, submitted, started, node_list, comment and work_folder only.
  virtual Answer<std::vector<ListedJob>> find(std::uint64_t job) = 0;

  /// Cancels jobs. Ended and unknown jobs need no cancelling and count as Done. A refusal does not stop the others: the
  /// remaining jobs are tried, and the answer is the first refusal.
  virtual Answer<Done> cancel(const std::vector<JobId>& jobs) = 0;
  /// Holds the job as its owner, so that the owner may release it.
  virtual Answer<Done> hold(const JobId& job) = 0;
  virtual Answer<Done> release(const JobId& job) = 0;
  /// Sets the time limit; 0 means unlimited. Raising the limit needs an operator's rights, unless the job is still
  /// queued.
  virtual Answer<Done> update_time_limit(const JobId& job, std::chrono::minutes limit) = 0;
  /// Sets the nodes that a queued job must not get, replacing the previous list. The number of an array stands for all
  /// its waiting elements. Also Refused when some elements already run; the waiting elements are changed all the same.
  virtual Answer<Done> exclude(const JobId& job, const std::vector<std::string>& nodes) = 0;

  /// The recorded runs of the jobs, oldest first. Refused where the cluster keeps no accounting. A job that accounting
  /// does not know has no runs. A run may appear seconds after squeue shows the end of the job.
  virtual Answer<std::vector<PastRun>> history(const std::vector<std::uint64_t>& jobs) = 0;

  virtual Answer<std::vector<Partition>> partitions() = 0;
  virtual Answer<std::vector<Node>> nodes() = 0;
  virtual Answer<ClusterConfig> config() = 0;
};

}  // namespace slurm
