#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "slurm/answer.h"
#include "slurm/job_id.h"
#include "slurm/job_state.h"

namespace slurm {

using Time = std::chrono::sys_seconds;  // Slurm counts whole seconds, by its own machine's clock

/// How a job or step ended.
struct ExitStatus {
  int code = 0;
  int signal = 0;  // 0: none

  bool operator==(const ExitStatus&) const = default;
};

/// One job, or one element of an array, as squeue lists it now.
struct ListedJob {
  JobId id{};                // "123_4" for an element
  std::uint64_t raw_id = 0;  // Slurm's own number for this element, as in SLURM_JOB_ID
  ListedState state{};
  std::string reason{};        // "Priority", "None"; see explain_reason
  std::uint32_t nodes = 0;     // had or wanted
  std::string node_list{};     // see expand_hosts; empty while queued
  std::string batch_host{};    // where the batch script runs; empty while queued
  std::uint32_t restarts = 0;  // how often Slurm itself started it again
  std::optional<Time> submitted{};
  std::optional<Time> started{};   // of a queued job: when Slurm expects it to start
  std::optional<Time> ends{};      // when it ended, or its limit
  std::optional<Time> eligible{};  // not before this
  std::optional<Time> preempted{};
  std::optional<std::chrono::seconds> time_limit{};  // nothing: unlimited
  /// Of the batch script, once it ended. Of a job that waits again: what its last run ended with, if that is why
  /// (RequeueExit); after `scontrol requeue` and the like nothing.
  std::optional<ExitStatus> exit{};
  std::optional<ExitStatus> worst_step{};  // the highest exit of its srun steps; only once it ended
  std::string partition{};                 // of a queued job perhaps several, with commas
  std::uint64_t priority = 0;              // 0: held
  std::string user{};
  std::string account{};
  std::string qos{};
  std::string dependency{};  // what is left of it: "afterok:12(unfulfilled)"
  std::string name{};
  std::string comment{};
  std::string work_folder{};  // what the script was submitted with; told by find() alone
};

/// One run of a job as accounting remembers it. A requeued job has one for each run.
struct PastRun {
  JobId id{};
  std::uint64_t raw_id = 0;
  ListedState state{};
  ExitStatus exit{};
  ExitStatus worst_step{};
  std::optional<Time> submitted{};
  std::optional<Time> started{};  // nothing: it never did
  std::optional<Time> ended{};
  std::string node_list{};
  std::string reason{};
  std::string user{};
  std::string name{};
  std::string comment{};  // empty unless the cluster keeps comments (AccountingStoreFlags=job_comment)
};

/// A partition as Slurm has it.
struct Partition {
  std::string name{};
  std::string state{};  // UP, DOWN, DRAIN, INACTIVE
  bool is_default = false;
  std::string node_list{};
  std::uint32_t total_nodes = 0;
  std::uint32_t total_cpus = 0;
  std::optional<std::chrono::seconds> max_time{};      // nothing: unlimited
  std::optional<std::chrono::seconds> default_time{};  // nothing: max_time
  std::optional<std::uint32_t> max_nodes{};            // nothing: unlimited
  std::uint32_t min_nodes = 0;
  std::vector<std::string> allow_groups{};    // empty: all
  std::vector<std::string> allow_accounts{};  // empty: all
  std::vector<std::string> deny_accounts{};
  std::vector<std::string> allow_qos{};  // empty: all
  std::vector<std::string> deny_qos{};
  std::string qos{};
  std::uint32_t priority_tier = 0;
  std::string preempt_mode{};  // OFF, REQUEUE, CANCEL, SUSPEND, GANG,...
  std::chrono::seconds grace{0};
  std::string tres{};                           // "cpu=32,mem=16000M,node=4,gres/gpu=8"
  std::map<std::string, std::string> fields{};  // everything Slurm said, by its names
};

/// A node as Slurm has it.
struct Node {
  std::string name{};
  std::string address{};  // NodeAddr: what to connect to; names need not resolve
  std::string host_name{};
  std::vector<std::string>
      states{};          // "IDLE", "DRAIN"; base state first, then what is joined with +, without * and such
  bool responds = true;  // false: Slurm marks it with *
  std::string reason{};  // why it is down or drained: "power supply [root@2026-11-21T09:00:00]"
  std::uint32_t cpus = 0;
  std::uint32_t cpus_used = 0;
  std::uint64_t memory_mib = 0;
  std::uint64_t memory_used_mib = 0;  // promised to jobs
  std::string gres{};                 // "gpu:fake:2"
  std::string tres_used{};            // "cpu=1,gres/gpu=1"
  std::vector<std::string> features{};
  std::vector<std::string> partitions{};
  std::optional<Time> slurmd_started{};
  std::map<std::string, std::string> fields{};

  /// Up and neither drained nor about to be: jobs may start there now or when others leave.
  bool usable() const;
};

/// What of a cluster's configuration decides how a job must behave.
struct ClusterConfig {
  std::string cluster{};
  std::string version{};
  std::optional<Time> now{};        // what slurmctld's clock said when it answered
  std::vector<int> requeue_exit{};  // a batch script that exits so is requeued
  std::vector<int> requeue_exit_hold{};
  bool job_requeue = true;             // jobs may be requeued unless they say otherwise
  std::chrono::seconds kill_wait{30};  // from TERM to KILL
  std::chrono::seconds slurmd_timeout{300};
  std::chrono::seconds cred_expire{120};  // plus 1 s: how long a requeued job is held
  std::chrono::seconds min_job_age{300};  // how long squeue knows an ended job; 0: for ever
  std::chrono::seconds message_timeout{10};
  std::uint64_t max_array_size = 1001;  // task ids are below this
  std::uint64_t max_job_count = 10000;
  std::string preempt_type{};        // "preempt/partition_prio"
  std::string preempt_mode{};        // "REQUEUE", "OFF"
  bool warns_at_preemption = false;  // SlurmctldParameters has preempt_send_user_signal
  bool has_accounting = false;       // sacct has something to say
  std::map<std::string, std::string> fields{};
};

/// When and where a job would start.
struct StartEstimate {
  std::optional<Time> start{};
  std::uint32_t cpus = 0;
  std::string node_list{};
  std::string partition{};
  std::string said{};  // Slurm's own words
};

/// What scancel sends, to whom.
struct Cancel {
  std::string signal{};     // "USR2"; empty: the job is ended (TERM, then KILL after KillWait)
  bool batch_only = false;  // the batch script alone
  bool full = false;        // the batch script and everything it started
};

/// Everything muster asks of Slurm. Each call takes as long as its own time limit allows at most, and never throws for
/// what Slurm does. May be called from several threads.
class Scheduler {
 public:
  virtual ~Scheduler() = default;

  /// Hands a script to sbatch. `arguments` are put before it ("--hold"). keep_fds stay open in sbatch while it runs, so
  /// that a lock on one of them says whether a submission may still be under way after we died. `environment` is all
  /// that the job gets besides what Slurm adds; its PATH is extended where it does not lead to srun.
  virtual SubmitAnswer submit(const std::string& script, const std::vector<std::string>& arguments = {},
                              const std::vector<int>& keep_fds = {},
                              const std::map<std::string, std::string>& environment = {}) = 0;

  /// Whether Slurm would take the script, and when it would start. Nothing is submitted.
  virtual Answer<StartEstimate> test_only(const std::string& script,
                                          const std::vector<std::string>& arguments = {}) = 0;

  /// Every job Slurm still knows, ended ones too, elements of arrays one by one: one query. user: only this one's;
  /// empty: all. An empty list means there are none; an answer we don't understand is Unreachable.
  virtual Answer<std::vector<ListedJob>> list(const std::string& user = {}) = 0;

  /// The job with this number, or all elements of the array with it, as slurmctld itself has them now, whatever stands
  /// between us and squeue. Empty: it knows none. Tells id, state, reason, restarts, submitted, started, node_list,
  /// name, comment and work_folder.
  virtual Answer<std::vector<ListedJob>> find(std::uint64_t job) = 0;

  /// Ended and unknown jobs are none to end: Done. Otherwise the first refusal; the others were asked all the same.
  virtual Answer<Done> cancel(const std::vector<JobId>& jobs, const Cancel& how = {}) = 0;
  /// By the job's owner: the owner may release it again.
  virtual Answer<Done> hold(const JobId& job) = 0;
  virtual Answer<Done> release(const JobId& job) = 0;
  /// 0: none. Raising it needs an operator's rights unless the job is still queued.
  virtual Answer<Done> update_time_limit(const JobId& job, std::chrono::minutes limit) = 0;
  /// A queued job gets none of these nodes, instead of those it was to get none of before; an array's number stands for
  /// all its elements that wait. Refused too where some of them run already; the others are changed all the same.
  virtual Answer<Done> exclude(const JobId& job, const std::vector<std::string>& nodes) = 0;

  /// What accounting remembers, oldest run first. Refused where the cluster keeps no accounting. Ids that it does not
  /// know have no runs; a job's runs may come seconds after squeue knows of its end.
  virtual Answer<std::vector<PastRun>> history(const std::vector<std::uint64_t>& jobs) = 0;

  virtual Answer<std::vector<Partition>> partitions() = 0;
  virtual Answer<std::vector<Node>> nodes() = 0;
  virtual Answer<ClusterConfig> config() = 0;
};

}  // namespace slurm
