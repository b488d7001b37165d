#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "actions/launch_plan.h"
#include "admission/sweep_gate.h"
#include "jobs/event_log.h"
#include "jobs/spec_cache.h"
#include "partitions/partitions.h"

namespace runtime {

/// Carries out the store's outbox: StartAttempt when it is due, the others at once, but RemoveFiles (see JobRemover).
/// An action is completed only after what came of it is durable, so a crash anywhere means it is carried out again,
/// which does no harm: executors find what was launched before, and actions that the job has outlived are skipped.
///
/// Threads: one that reads the outbox, kLaunchers that launch, so that one slow launch does not hold up the rest.
/// Without threads, poll() does it all.
class ActionRunner {
 public:
  static constexpr int kLaunchers = 4;

  struct Parts {
    store::Store& store;
    Executor& executor;
    Clock& clock;
    EventLog& event_log;
    SpecCache& specs;
    SweepGate& gate;
    Partitions& partitions;
    core::Millis excluded_for = kExcludedFor;
  };
  ActionRunner(Parts parts, bool threads);
  ~ActionRunner();
  ActionRunner(const ActionRunner&) = delete;
  ActionRunner& operator=(const ActionRunner&) = delete;

  void start(LaunchSettings settings);
  /// The outbox has something new.
  void wake();
  /// Carries out what is due, in this thread. Only without threads.
  void poll();
  /// Adds to each request the nodes that were lost lately, as before every launch.
  void leave_out_lost_nodes(std::vector<LaunchRequest>& requests) const;
  /// So many attempts of a sweep are launched together at most.
  static constexpr std::size_t kLargestBatch = 1000;
  LostNodes nodes_lost_lately() const;
  /// Why the job's next attempt could not be launched the last time, and is tried again at no cost; nullopt: it was not
  /// put off, or its executor tells why itself (Executor::queue_word).
  std::optional<LaunchLater> put_off(core::JobId job) const;
  /// Starts nothing more.
  void stop_taking();
  /// The same, and waits for launches under way.
  void close();

 private:
  void keep_places();
  void run_outbox();
  void run_launcher();
  void read_outbox();
  core::Millis backoff_left(const store::PendingAction& action) const;
  /// Actions carried out together: first attempts of one sweep, stops, or one action of any kind.
  using Batch = std::vector<store::PendingAction>;
  /// What is due now, marked as under way.
  std::vector<Batch> take_due();
  /// The sweep whose other first attempts may be launched with this one; empty: it goes alone.
  std::string batch_name(const store::PendingAction& action) const;
  /// Of each sweep, first attempts that are still to be handed over as an array; empty: not counted yet.
  using ToQueue = std::map<std::string, std::size_t>;
  std::size_t count_to_queue(const std::string& sweep, ToQueue& known) const;
  /// A first attempt that a queue takes together with others, and limits itself.
  bool goes_together(const store::PendingAction& action) const;
  /// What is started or released there must wait. Otherwise its sweep and its partition have kept a place for it.
  bool gate_closed(const store::PendingAction& action, ToQueue& to_queue);
  /// What came of each of a batch: nothing, if it is done, or after how long to try again.
  using Pauses = std::vector<std::optional<LaunchLater>>;
  void perform(const Batch& batch);
  bool perform(const store::PendingAction& action);
  Pauses start_attempts(const Batch& batch);
  std::vector<LaunchAnswer> launch(std::vector<LaunchRequest>& requests);
  /// What is to be launched, or what the answer is without that; neither: nothing is to be done any more.
  std::variant<std::monostate, LaunchRequest, LaunchAnswer> prepare(const core::AttemptKey& key);
  std::optional<LaunchAnswer> withdraw(const core::AttemptKey& key);
  bool stop_attempt(core::JobId id, const core::StopAttempt& action);
  bool hold_attempt(core::JobId id, const core::HoldAttempt& action);
  bool limit_attempt(core::JobId id, const core::LimitAttempt& action);
  /// What to launch, or why that can't be.
  std::variant<LaunchRequest, core::AttemptLaunchFailed, LaunchLater> plan(const core::Job& job,
                                                                           core::AttemptNumber attempt);
  /// Under the lock: keeps, or forgets, why a launch was put off.
  void note(core::JobId job, const std::optional<LaunchLater>& later);
  void finish(const Batch& batch, const Pauses& pauses);
  void complete(const std::vector<std::int64_t>& actions);

  Parts parts_;
  const bool threads_;
  LaunchSettings settings_;

  mutable std::mutex mutex_;
  std::condition_variable wake_, launchers_wake_;
  bool closed_ = false;
  bool stale_ = true;  // the outbox must be read again
  std::map<std::int64_t, store::PendingAction> waiting_;
  /// What is found out of an action once, when it is first seen.
  struct Plan {
    core::Millis due{0};  // monotonic
    std::string batch;    // see batch_name
  };
  std::map<std::int64_t, Plan> plans_;                     // written by the one that reads the outbox
  std::map<std::int64_t, core::Millis> not_again_before_;  // tried in vain
  std::map<core::JobId, LaunchLater> put_off_;
  std::set<std::int64_t> under_way_;
  std::set<std::int64_t> unsure_;       // may have been carried out, so they have their places
  std::set<std::int64_t> to_complete_;  // carried out, but the store did not take that
  std::set<core::JobId> jobs_launching_;
  std::deque<Batch> launches_;
  std::vector<std::thread> threads_running_;
};

}  // namespace runtime
