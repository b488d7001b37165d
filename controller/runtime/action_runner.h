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

#include "runtime/dispatcher.h"
#include "runtime/launch_plan.h"
#include "runtime/spec_cache.h"

namespace runtime {

/// Carries out the store's outbox: StartAttempt when it is due, StopAttempt at once. An action is completed only after
/// what came of it is durable, so a crash anywhere means it is carried out again, which does no harm: executors find
/// what was launched before, and actions that the job has outlived are skipped.
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
    Dispatcher& dispatcher;
    SpecCache& specs;
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
  /// Starts nothing more.
  void stop_taking();
  /// The same, and waits for launches under way.
  void close();

 private:
  void run_outbox();
  void run_launcher();
  void read_outbox();
  core::Millis backoff_left(const store::PendingAction& action) const;
  /// What is due now, marked as under way.
  std::vector<store::PendingAction> take_due();
  void perform(const store::PendingAction& action);
  bool start_attempt(core::JobId id, const core::StartAttempt& action);
  bool stop_attempt(core::JobId id, const core::StopAttempt& action);
  core::EventBody launch(const core::Job& job, core::AttemptNumber attempt);
  void finish(std::int64_t action_id, bool done);

  Parts parts_;
  const bool threads_;
  LaunchSettings settings_;

  std::mutex mutex_;
  std::condition_variable wake_, launchers_wake_;
  bool closed_ = false;
  bool stale_ = true;  // the outbox must be read again
  std::map<std::int64_t, store::PendingAction> waiting_;
  std::map<std::int64_t, core::Millis> due_;               // of those that wait for a backoff; monotonic
  std::map<std::int64_t, core::Millis> not_again_before_;  // tried in vain
  std::set<std::int64_t> under_way_;
  std::set<std::int64_t> to_complete_;  // carried out, but the store did not take that
  std::set<core::JobId> jobs_launching_;
  std::deque<store::PendingAction> launches_;
  std::vector<std::thread> threads_running_;
};

/// Between the polite signal and SIGKILL: the job's own grace where ranks are to save, a short one where they can't.
core::Millis stop_grace(const muster::v1::JobSpec& spec, bool save);

/// True when attempt `number` is the one the job waits for.
bool expects_launch(const core::Job& job, core::AttemptNumber number);

}  // namespace runtime
