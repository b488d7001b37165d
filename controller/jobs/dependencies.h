#pragma once

#include <mutex>
#include <set>

#include "controller/jobs/event_log.h"

namespace jobs {

/// Tells jobs that wait for others of their ends: core::DependencyEnded, once for each. Thread-safe.
class Dependencies {
 public:
  explicit Dependencies(EventLog& event_log) : event_log_(event_log) {}

  /// Takes in the job as its history says it is now; cheap.
  void follow(const core::Job& job);
  /// Looks at the jobs waited for, if anything has changed since the last time. Throws store::Error.
  void tell();

 private:
  EventLog& event_log_;
  std::mutex mutex_;
  std::set<core::JobId> waiting_;
  bool news_ = false;
};

}  // namespace jobs
