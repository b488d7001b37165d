#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>

#include "core/job.h"

namespace runtime {

/// Which jobs of each sweep have an attempt right now, or are on the way to one: at most `parallel` of each.
/// Thread-safe.
///
/// First attempts that wait in a scheduler's queue as elements of arrays were handed over together with the sweep's
/// limit, which the scheduler keeps: as long as so many of them are left, all places are theirs, and what comes back
/// waits behind them. Only so does the limit hold whenever the scheduler starts the next of them. Everything else is
/// counted one by one; while any of that has a place, first attempts are counted, too, and go without an array.
///
/// A first attempt that the queue holds for a person is left out of account: what comes back need not wait for its
/// release. Once released it stays held there until there is room.
///
/// Somebody can always go on: what comes back waits for first attempts, and these only for attempts that are there.
class SweepGate {
 public:
  /// What the job's history says.
  void follow(const core::Job& job);
  /// Keeps a place for the job's next attempt if there is room; once kept, asking again is fine. `in_array`: a first
  /// attempt that can be handed over with others and the sweep's limit. `to_queue`: how many of those are still to
  /// come.
  bool enter(const core::Job& job, bool in_array, std::size_t to_queue);
  /// Whether the attempt being launched is counted by itself: its sweep's limit must not be handed over with it.
  bool goes_alone(core::JobId job) const;
  /// The launch is over: the place is free again unless an attempt is there.
  void leave(core::JobId job);
  /// After a restart: the job's next attempt may be there already. It has a place until leave().
  void keep(const core::Job& job, bool in_array);
  /// Its queue holds the job's attempt now.
  void hold(const core::Job& job);
  /// After a restart: the job's attempt has been released, and its queue may hold it still.
  void release(const core::Job& job);
  /// Whether its queue may let the released attempt go; if so it is counted, and asking again is fine.
  bool let_go(const core::Job& job);
  /// Why the job was kept back the last time; empty: it was not.
  std::string explain(core::JobId job) const;

 private:
  struct Sweep {
    std::set<core::JobId> places;
    std::set<core::JobId> first;     // attempts in, or from, arrays in a scheduler's queue
    std::set<core::JobId> to_hold;   // of both, those that people hold and the queue does not yet
    std::set<core::JobId> held;      // first attempts that it holds
    std::set<core::JobId> released;  // the same, released since, but not let go yet
    bool has_room(std::size_t most, bool in_array, std::size_t ahead) const;
    void count(const core::Job& job);
    void leave_out(core::JobId job);
    bool is_empty() const { return places.empty() && first.empty() && held.empty() && released.empty(); }
  };
  void forget_if_empty(const std::string& sweep);

  mutable std::mutex mutex_;
  std::map<std::string, Sweep> sweeps_;
  std::map<core::JobId, std::string> entering_;  // and the sweep of each
  std::map<core::JobId, std::string> kept_out_;  // and why
};

}  // namespace runtime
