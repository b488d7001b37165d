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
/// First attempts that wait in a scheduler's queue were handed over together with the sweep's limit, which the
/// scheduler keeps: as long as so many of them are left, all places are theirs, and what comes back waits behind them.
/// Only so does the limit hold whenever the scheduler starts the next of them. One that a person holds in the queue is
/// left out of account: what comes back need not wait for its release.
class SweepGate {
 public:
  /// What the job's history says.
  void follow(const core::Job& job);
  /// Keeps a place for the job's next attempt if its sweep has one left; once kept, asking again is fine. `to_queue`:
  /// how many first attempts of the sweep are still to be handed over to a scheduler.
  bool enter(const core::Job& job, std::size_t to_queue = 0);
  /// The launch is over: the place is free again unless an attempt is there.
  void leave(core::JobId job);
  /// Why enter() said no the last time; empty: it did not.
  std::string explain(core::JobId job) const;

 private:
  struct Sweep {
    std::set<core::JobId> places;
    std::set<core::JobId> first;  // attempts in, or from, a scheduler's queue
  };
  void forget_if_empty(const std::string& sweep);

  mutable std::mutex mutex_;
  std::map<std::string, Sweep> sweeps_;
  std::map<core::JobId, std::string> entering_;  // and the sweep of each
  std::map<core::JobId, std::string> kept_out_;  // and why
};

}  // namespace runtime
