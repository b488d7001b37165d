#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller/common/changes.h"
#include "controller/common/clock.h"
#include "controller/common/loop.h"
#include "controller/core/job.h"
#include "controller/executors/executor.h"
#include "controller/jobs/event_log.h"
#include "controller/jobs/specs.h"
#include "controller/partitions/partition_policies.h"
#include "controller/partitions/policy_store.h"
#include "controller/store/store.h"
#include "muster/v1/job.pb.h"
#include "muster/v1/partition.pb.h"

namespace partitions {

/// Misfits between a policy and the partition of that name in Slurm, each with its remedy. `slurm` null: Slurm has
/// none. Only to be asked when Slurm has answered.
std::vector<std::string> misfits(const PartitionPolicy& policy, const executors::PartitionFacts* slurm);

/// A policy and Slurm's facts side by side, without what concerns the one who asks. Either may be missing.
muster::v1::PartitionView partition_view(const std::string& name, const PartitionPolicy* policy,
                                         const executors::ClusterFacts& slurm);

/// Why a job that Slurm has taken can never start as it is.
struct NeverStarts {
  std::string why;                         // "it asks for 5 nodes, and partition \"main\" has 4"
  std::string instead;                     // what to ask for: "resources.nodes at most 4"
  std::optional<core::Millis> limit = {};  // a time limit that would do, where that is all that is wrong
};
/// nullopt: nothing that Slurm says of its partitions and nodes speaks against it. `limit`: the one in force.
std::optional<NeverStarts> never_starts(const muster::v1::JobSpec& spec, core::Millis limit,
                                        const executors::ClusterFacts& slurm);

/// Nodes as Slurm has them, and which of them get no rank of muster's: those that NodeLost events speak of, for
/// `excluded_for` from then on. Of several losses of a node the newest counts.
std::vector<muster::v1::NodeView> node_views(const std::vector<executors::NodeFacts>& nodes,
                                             const std::vector<store::StoredEvent>& losses, core::Millis excluded_for);

muster::v1::AuditEntry audit_view(const store::AuditRow& row);

/// Names of the groups that this machine knows the user to be in; none for a user it does not know. At most
/// kMostGroups. May ask a directory service, and take its time.
std::vector<std::string> groups_of(const std::string& user);
inline constexpr int kMostGroups = 4096;

/// Names of the groups of users, remembered for a minute, so that a burst of submissions asks once. Thread-safe.
class UserGroups {
 public:
  using Ask = std::function<std::vector<std::string>(const std::string& user)>;
  explicit UserGroups(common::Clock& clock, Ask ask = groups_of) : clock_(clock), ask_(std::move(ask)) {}
  std::vector<std::string> of(const std::string& user);

  static constexpr core::Millis kRemembered{60'000};
  static constexpr std::size_t kMostUsers = 1000;

 private:
  struct Known {
    core::Millis until{0};
    std::vector<std::string> groups;
  };
  common::Clock& clock_;
  const Ask ask_;
  std::mutex mutex_;
  std::map<std::string, Known> known_;
};

/// The scheduler's facts about its partitions and nodes: asked for at the start, every kInterval while they are in use,
/// and when somebody wants to know. A scheduler that is slow or down keeps nobody waiting longer than he says.
/// Thread-safe.
class ClusterWatch {
 public:
  /// Between two questions while attempts are in the scheduler's hands. Older facts are asked for anew, for the next
  /// one, when somebody looks at them.
  static constexpr core::Millis kInterval{60'000};
  /// To people who only look, what is no older than this is new enough.
  static constexpr core::Millis kFresh{1000};

  /// Without threads every look asks. `in_use`: whether attempts are in the scheduler's hands; empty: none ever.
  ClusterWatch(executors::Executor& executor, common::Clock& clock, bool threads, std::function<bool()> in_use = {});

  void start() { loop_.start(); }
  void close();
  /// `in_use` says true from now on.
  void use() {
    const std::lock_guard lock(mutex_);
    end_rest();
  }

  using Facts = std::shared_ptr<const executors::ClusterFacts>;
  /// The facts that are known; never null.
  Facts known();
  /// The scheduler's answer to a question put after this call, or an answer no older than `fresh`; after `patience` the
  /// facts that are known, with `unreachable` set.
  Facts ask(std::chrono::milliseconds patience, core::Millis fresh = kFresh);

 private:
  std::optional<core::Millis> step();
  void refresh();
  /// Under the lock.
  void end_rest() {
    if (!std::exchange(rests_, false)) return;
    looked_ = true;
    loop_.wake();
  }

  executors::Executor& executor_;
  common::Clock& clock_;
  const bool threads_;
  const std::function<bool()> in_use_;
  std::mutex mutex_;
  std::condition_variable news_;
  Facts facts_ = std::make_shared<executors::ClusterFacts>();
  core::Millis asked_at_{0};                // monotonic, of what is known
  std::uint64_t begun_ = 0, answered_ = 0;  // the newest question, and the newest with an answer, good or bad
  bool closed_ = false;
  bool wanted_ = true;        // a question is to be put now: at the start, and for ask()
  bool rests_ = false;        // the loop sleeps until somebody looks
  bool looked_ = false;       // somebody has ended the rest
  core::Millis tried_at_{0};  // monotonic, of the newest question; of the loop's thread
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
    std::function<bool()> in_use = {};                    // see ClusterWatch
    std::function<void()> policies_changed = {};
  };
  /// `file`: see PolicyStore, which says what is thrown.
  Partitions(Parts parts, std::filesystem::path file, bool threads);

  void start() {
    keeper_.start();
    if (has_slurm()) cluster_.start();
  }
  void close() {
    keeper_.close();
    cluster_.close();
  }
  /// Does the work that is due. Only without threads.
  void poll() { keeper_.poll(); }
  /// An attempt is in the scheduler's hands.
  void use() { cluster_.use(); }

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
  std::optional<common::Refusal> judge_time(const core::Job& job, core::Millis limit) {
    return keeper_.book()->judge_time(partition_of(job.id), limit.count());
  }

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
  bool is_for_slurm(const muster::v1::JobSpec& spec) const {
    return parts_.executor.has_queue(spec.executor().empty() ? "auto" : spec.executor());
  }
  std::string partition_of(core::JobId job) {
    const auto spec = parts_.specs.get(job);
    return spec == nullptr ? std::string() : place_of(*spec);
  }
  std::string slurm_problem(const executors::ClusterFacts& facts) const {
    if (const auto trouble = parts_.executor.trouble()) return executors::unreachable_text(*trouble);
    return facts.unreachable.empty() ? std::string() : "unreachable: " + facts.unreachable;
  }
  Applicant applicant(const std::string& user) { return {user, groups_.of(user)}; }

  Parts parts_;
  PolicyStore keeper_;
  ClusterWatch cluster_;
  UserGroups groups_;
  std::mutex turn_;
};

}  // namespace partitions
