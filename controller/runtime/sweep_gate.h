#pragma once

#include <map>
#include <mutex>
#include <set>
#include <string>

#include "core/job.h"

namespace runtime {

/// Which jobs of each sweep have an attempt right now, or are on the way to one. First attempts in a scheduler's queue
/// take no place: they were handed over together with the sweep's limit, which the scheduler keeps. Thread-safe.
class SweepGate {
 public:
  /// What the job's history says.
  void follow(const core::Job& job);
  /// Keeps a place for the job's next attempt if its sweep has one left; once kept, asking again is fine.
  bool enter(const core::Job& job);
  /// The launch is over: the place is free again unless an attempt is there.
  void leave(core::JobId job);

 private:
  void give_up(const std::string& sweep, core::JobId job);

  std::mutex mutex_;
  std::map<std::string, std::set<core::JobId>> places_;
  std::map<core::JobId, std::string> entering_;  // and the sweep of each
};

}  // namespace runtime
