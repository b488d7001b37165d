#pragma once

#include "jobs/event_log.h"
#include "jobs/spec_cache.h"
#include "ranks/live_ranks.h"

namespace service {

/// Brings the executor's truth and the store together after a start: every attempt that has not ended is watched again,
/// with time for its ranks to find the new controller, and adopted by the executor, whose facts tell what happened
/// meanwhile. Actions that were under way are the ActionRunner's: they are still in the outbox.
class Reconciler {
 public:
  struct Parts {
    store::Store& store;
    executors::Executor& executor;
    base::Clock& clock;
    jobs::EventLog& event_log;
    jobs::SpecCache& specs;
    ranks::LiveRanks& live_ranks;
  };
  explicit Reconciler(Parts parts) : parts_(parts) {}

  /// After Executor::start(). One job's trouble is logged and does not keep the others from being taken over.
  void take_over();

  /// Ranks wait between attempts to reach a controller that was away; their silence counts from here on.
  static constexpr core::Millis kReconnectPatience{10000};

 private:
  void take_over(const core::Job& job, const core::Attempt& attempt);
  void recall_history(const core::AttemptKey& key);

  Parts parts_;
};

}  // namespace service
