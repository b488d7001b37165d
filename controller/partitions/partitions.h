#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/obstacle.h"
#include "executors/executor.h"
#include "jobs/event_log.h"
#include "jobs/spec_cache.h"
#include "partitions/cluster_watch.h"
#include "partitions/policy_store.h"
#include "partitions/user_groups.h"
#include "partitions/user_jobs.h"

namespace runtime {

/// Everything about partitions that the controller needs: submissions are judged, launches held back and equipped,
/// admins answered. Jobs that don't go to a scheduler's queue are none of its business. Thread-safe.
class Partitions {
 public:
  struct Parts {
    store::Store& store;
    Executor& executor;
    Clock& clock;
    SpecCache& specs;
    std::string why_no_slurm = {};             // see ControllerOptions
    core::Millis excluded_for = kExcludedFor;  // the same
  };
  /// `file`: see PolicyStore, which says what is thrown.
  Partitions(Parts parts, std::filesystem::path file, bool threads);

  void start();
  void close();
  /// What is due. Only without threads.
  void poll() { keeper_.poll(); }

  // Submissions

  /// Fills what the job file leaves out, then judges; the spec's own defaults are not filled in yet.
  std::optional<Refusal> admit(muster::v1::JobSpec& spec, const std::string& user);
  /// The partition that max_queued_jobs_per_user counts the job in; empty: none.
  std::string place_of(const muster::v1::JobSpec& spec) const;
  /// Whether `user` may have so many more jobs waiting in these partitions. Where that is limited the lock must be kept
  /// until they are stored, or two submissions at once would both be the last one.
  struct Turn {
    std::unique_lock<std::mutex> lock;
    std::optional<Refusal> refusal;
  };
  Turn take_turn(const std::map<std::string, std::uint32_t>& more, const std::string& user);
  /// Whether the job may have this time limit.
  std::optional<Refusal> judge_time(const core::Job& job, core::Millis limit);

  // Launches

  /// What the job's history says.
  void follow(const core::Job& job) { jobs_.follow(job); }
  /// False: max_running_jobs_per_user holds it back. Otherwise a place is kept until leave().
  bool enter(const core::Job& job);
  /// The job's next attempt may be there already: it has a place until leave(), whatever the limit.
  void keep(const core::Job& job);
  void leave(core::JobId job) { jobs_.leave(job); }
  /// Whether max_running_jobs_per_user may let the job in later than others of its sweep.
  bool limits_running(core::JobId job) { return running_limit(job).has_value(); }
  bool limits_running(const muster::v1::JobSpec& spec) const;
  /// Adds what the partition's policy wants done before ranks start.
  void equip(LaunchRequest& request);
  /// That a limit holds the job back. `scheduler_reason`: Slurm's own word for why it waits in the queue; empty: none.
  std::optional<Obstacle> explain(const core::Job& job, const std::string& scheduler_reason);

  // Admins. Refused where there is no Slurm.

  Outcome<muster::v1::ListPartitionsResponse> list(const muster::v1::ListPartitionsRequest& request);
  Outcome<muster::v1::PartitionView> set(const muster::v1::SetPartitionRequest& request);
  Outcome<muster::v1::RemovePartitionResponse> remove(const muster::v1::RemovePartitionRequest& request);
  Outcome<muster::v1::ListNodesResponse> nodes();
  muster::v1::ListAuditResponse audit(const muster::v1::ListAuditRequest& request);
  /// Of the file, and of policies that do not fit Slurm.
  std::vector<std::string> problems();

 private:
  /// Of a job whose reason in Slurm's queue may be one for ever.
  std::optional<Obstacle> explain_never(const core::Job& job);
  bool has_slurm() const { return parts_.executor.has_queue("slurm"); }
  bool is_for_slurm(const muster::v1::JobSpec& spec) const;
  std::string partition_of(core::JobId job);
  /// nullopt: nothing holds it back.
  std::optional<std::uint32_t> running_limit(core::JobId job);
  std::string slurm_problem(const ClusterFacts& facts) const;
  Applicant applicant(const std::string& user) { return {user, groups_.of(user)}; }

  Parts parts_;
  PolicyStore keeper_;
  ClusterWatch cluster_;
  UserGroups groups_;
  UserJobs jobs_;
  std::mutex turn_;
};

}  // namespace runtime
