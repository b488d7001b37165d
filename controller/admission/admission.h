#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/admission/ledger.h"
#include "controller/common/changes.h"
#include "controller/common/clock.h"
#include "controller/executors/executor.h"
#include "controller/jobs/specs.h"

namespace admission {

/// The wait of a job that a person holds; nullopt: nobody holds the job. Pure.
std::optional<common::Wait> wait_for_release(const core::Job& job);
/// The wait of a job whose next attempt is backed off. Pure.
common::Wait wait_for_backoff(const core::Job& job);

/// The wait of a job that nothing keeps but an admin's order that no attempt starts. Pure.
common::Wait wait_for_resume(const core::Drain& drain);

/// The part of a job that musterd's own machine must give it.
executors::MachineWish wish_of(const muster::v1::JobSpec& spec);

/// The one answer to "may this job start now?". The reasons, in the order in which they are looked at: a person holds
/// the job; it waits for other jobs; its backoff; an admin's order to drain; a limit without a free slot; GPUs or cores
/// of musterd's own machine that others have; its last launch was put off. The first that holds is the answer, for the
/// runner and for `muster why`.
///
/// An attempt takes the slots of its limits, and its share of the machine, before its launch (or before its scheduler
/// is asked to let it go, where a person held it), and gives them back when it has ended: see Ledger and MachineLedger.
/// Thread-safe; nothing is read under the lock, which the writer of events takes, too.
class Admission {
 public:
  struct Parts {
    common::Clock& clock;
    jobs::SpecCache& specs;
    const executors::Executor& executor;
    std::function<std::shared_ptr<const partitions::PartitionPolicies>()> policies;
    std::function<std::optional<core::Drain>()> drain = {};  // empty: there is never one
  };
  explicit Admission(Parts parts) : parts_(std::move(parts)), machine_(parts_.executor.own_machine()) {}

  /// The first reason that keeps the job's next attempt, or a released one, from starting; nullopt: there is none, or
  /// the job neither waits nor is to start. Throws where limits() does.
  std::optional<common::Wait> why_not(const core::Job& job, core::Time now);

  /// Throws store::Error, or std::runtime_error, if what limits the job cannot be read now.
  std::vector<Limit> limits(const core::Job& job);
  /// why_not() with the limits of the job; if nothing keeps it, it takes its slots and its share of the machine. One
  /// that has them keeps them. Throws where limits() does.
  std::optional<common::Wait> enter(const core::Job& job, const std::vector<Limit>& limits);

  /// The first moment (monotonic) after `since` at which time alone may let a job in; nullopt: none waits for time.
  std::optional<core::Millis> next_by_time(core::Millis since) const;

  bool has_slots(core::JobId job) const {
    std::lock_guard lock(mutex_);
    return ledger_.has_slots(job);
  }
  /// The share that enter() gave to the launch under way; nullopt: nothing of musterd's own machine.
  std::optional<core::MachineShare> share(core::JobId job) const {
    std::lock_guard lock(mutex_);
    return machine_.share_of(job);
  }

  // Calls that tell what the store says, and what became of launches.

  void follow(const core::Job& job);
  /// The attempt is to start, not before this moment of the monotonic clock.
  void expect(const core::AttemptKey& key, core::Millis due);
  /// After a restart: the job's launch is under way, and its attempt may be there already, with this share.
  void keep_slots(const core::Job& job, const std::optional<core::MachineShare>& share);
  /// The queue of the job's attempt holds it for a person: its slots are free.
  void park(const core::Job& job) {
    std::lock_guard lock(mutex_);
    ledger_.park(job);
  }
  /// The launch is not to be tried again before its pause is over. `later` says why, where its executor does not.
  void put_off(core::JobId job, const executors::LaunchLater& later);
  /// The launch is over, with an attempt or without one.
  void settle(core::JobId job);
  /// The launch is over as for settle(), and this attempt is not expected any more. The next one may be expected
  /// already: an attempt that fails at once can be over before its launch is.
  void forget(const core::AttemptKey& key);

  /// Jobs of this user (empty: of all, and only those that are open are counted) that go to this partition.
  Count count(const std::string& partition, const std::string& user);
  /// Who has what of musterd's own machine.
  muster::v1::MachineView machine() const {
    std::lock_guard lock(mutex_);
    return machine_.view();
  }
  executors::OwnMachine own_machine() const {
    std::lock_guard lock(mutex_);
    return machine_.machine();
  }
  /// Facts that musterd knows of its own machine have changed. `open`: jobs that are not over, for keep_first(). Throws
  /// where limits() does.
  void look_at_machine(const std::vector<std::shared_ptr<const core::Job>>& open);
  /// After a restart: an attempt without a share that asks for GPUs was started by a muster that gave none, and sees
  /// the machine's first ones. They are kept for it until it has ended. Throws where limits() does.
  void keep_first(const core::Job& job);

 private:
  struct Start {
    core::AttemptNumber attempt = 0;
    core::Millis due{0};  // monotonic
    MachineLedger::Place place = MachineLedger::kLast;
    std::optional<executors::MachineNeed> need;  // nullopt: not read yet
    std::optional<executors::LaunchLater> later;
    core::Millis again{0};  // monotonic
  };
  /// The first reason before those of the machine.
  std::optional<common::Wait> wait_before_machine(const core::Job& job, core::Time now,
                                                  const std::vector<Limit>& limits) const;
  /// Throws store::Error, or std::runtime_error, if the spec cannot be read now.
  executors::MachineNeed need(core::JobId job);
  MachineLedger::Place place(core::JobId job) const {
    const auto start = starts_.find(job);
    return start == starts_.end() ? MachineLedger::kLast : start->second.place;
  }
  /// The share of the machine that the job has already, or may have now; nullopt: the job must wait.
  std::optional<core::MachineShare> room(const core::Job& job, const executors::MachineNeed& need) const;
  std::optional<common::Wait> backoff(const core::Job& job, core::Time now) const;
  std::optional<common::Wait> full(const core::Job& job, const std::vector<Limit>& limits) const;
  std::optional<common::Wait> retry(core::JobId job, bool entering) const;
  /// Says once of each job that GPUs are held back for it. Under the lock.
  void tell_doubts();
  bool is_for_slurm(const muster::v1::JobSpec& spec) const {
    return parts_.executor.has_queue(spec.executor().empty() ? "auto" : spec.executor());
  }
  /// Finds out where open jobs are counted; those whose spec cannot be read are asked for again.
  void find_partitions();

  const Parts parts_;
  mutable std::mutex mutex_;
  Ledger ledger_;
  MachineLedger machine_;
  MachineLedger::Place next_place_ = 0;
  std::map<core::JobId, Start> starts_;
  std::set<core::JobId> told_doubts_;
};

}  // namespace admission
