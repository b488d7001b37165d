#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "controller/common/changes.h"
#include "controller/common/clock.h"
#include "controller/common/loop.h"
#include "controller/executors/executor.h"
#include "controller/jobs/event_log.h"
#include "controller/jobs/specs.h"
#include "controller/partitions/policy_store.h"
#include "controller/partitions/user_groups.h"

namespace executors {
class Executor;
}

namespace partitions {

/// The scheduler's facts about its partitions and nodes, asked for now and then, and when somebody wants to know: a
/// scheduler that is slow or down keeps nobody waiting longer than he says. Thread-safe.
class ClusterWatch {
 public:
  /// Between two questions that nobody asked for.
  static constexpr core::Millis kInterval{60'000};
  /// To people who only look, what is no older than this is new enough.
  static constexpr core::Millis kFresh{1000};

  /// Without threads every look asks.
  ClusterWatch(executors::Executor& executor, common::Clock& clock, bool threads);

  void start() { loop_.start(); }
  void close();

  using Facts = std::shared_ptr<const executors::ClusterFacts>;
  /// The facts that are known; never null.
  Facts known();
  /// The scheduler's answer to a question put after this call, or an answer no older than `fresh`; after `patience` the
  /// facts that are known, with `unreachable` set.
  Facts ask(std::chrono::milliseconds patience, core::Millis fresh = kFresh);

 private:
  void refresh();

  executors::Executor& executor_;
  common::Clock& clock_;
  const bool threads_;
  std::mutex mutex_;
  std::condition_variable news_;
  Facts facts_ = std::make_shared<executors::ClusterFacts>();
  core::Millis asked_at_{0};                // monotonic, of what is known
  std::uint64_t begun_ = 0, answered_ = 0;  // the newest question, and the newest with an answer, good or bad
  bool closed_ = false;
  common::Loop loop_;
};

/// Everything about partitions that the controller needs: submissions are judged, launches equipped, admins answered.
/// Jobs that don't go to a scheduler's queue are none of its business. Thread-safe.
class Partitions {
 public:
  /// Jobs of one user in a partition.
  struct Jobs {
    std::uint32_t handed_over = 0, waiting = 0;  // one in the scheduler's queue is both
    std::uint32_t open = 0;                      // not ended; of an empty user those of all, and nothing else is told
  };
  using CountJobs = std::function<Jobs(const std::string& partition, const std::string& user)>;
  struct Parts {
    store::Store& store;
    executors::Executor& executor;
    common::Clock& clock;
    jobs::SpecCache& specs;
    CountJobs count_jobs;
    std::string why_no_slurm = {};                        // see ControllerOptions
    core::Millis excluded_for = executors::kExcludedFor;  // the same
  };
  /// `file`: see PolicyStore, which says what is thrown.
  Partitions(Parts parts, std::filesystem::path file, bool threads);

  void start();
  void close();
  /// Does the work that is due. Only without threads.
  void poll() { keeper_.poll(); }

  // Submissions

  /// Fills what the job file leaves out, then judges; the spec's own defaults are not filled in yet.
  std::optional<common::Refusal> admit(muster::v1::JobSpec& spec, const std::string& user);
  /// The partition that max_queued_jobs_per_user counts the job in; empty: none.
  std::string place_of(const muster::v1::JobSpec& spec) const;
  /// Judges whether `user` may have so many more jobs waiting in these partitions. Where that is limited the lock must
  /// be kept until they are stored, or two submissions at once would both be the last one.
  struct Turn {
    std::unique_lock<std::mutex> lock;
    std::optional<common::Refusal> refusal;
  };
  Turn take_turn(const std::map<std::string, std::uint32_t>& more, const std::string& user);
  /// Judges whether the job may have this time limit.
  std::optional<common::Refusal> judge_time(const core::Job& job, core::Millis limit);

  // Launches

  /// The policies that say what admins allow now.
  PolicyStore::Book policies() const { return keeper_.book(); }
  /// Adds what the partition's policy wants done before ranks start.
  void equip(executors::LaunchRequest& request);
  /// Why a queued job can never start as it is, where that can be told. `scheduler_reason`: Slurm's own word for why it
  /// waits.
  std::optional<common::Wait> why_never(const core::Job& job, const std::string& scheduler_reason);

  // Admins. Refused where there is no Slurm.

  common::Outcome<muster::v1::ListPartitionsResponse> list(const muster::v1::ListPartitionsRequest& request);
  common::Outcome<muster::v1::PartitionView> set(const muster::v1::SetPartitionRequest& request);
  common::Outcome<muster::v1::RemovePartitionResponse> remove(const muster::v1::RemovePartitionRequest& request);
  common::Outcome<muster::v1::ListNodesResponse> nodes();
  muster::v1::ListAuditResponse audit(const muster::v1::ListAuditRequest& request);
  /// Problems of the file, and of policies that do not fit Slurm.
  std::vector<std::string> problems();

 private:
  bool has_slurm() const { return parts_.executor.has_queue("slurm"); }
  bool is_for_slurm(const muster::v1::JobSpec& spec) const;
  std::string partition_of(core::JobId job);
  std::string slurm_problem(const executors::ClusterFacts& facts) const;
  Applicant applicant(const std::string& user) { return {user, groups_.of(user)}; }

  Parts parts_;
  PolicyStore keeper_;
  ClusterWatch cluster_;
  UserGroups groups_;
  std::mutex turn_;
};

}  // namespace partitions
