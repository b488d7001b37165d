#pragma once

#include <atomic>
#include <mutex>
#include <set>

#include "runtime/dispatcher.h"

namespace runtime {

/// Tells jobs that wait for others of their ends: core::DependencyEnded, once for each. Thread-safe.
class DependencyWatch {
 public:
  explicit DependencyWatch(Dispatcher& dispatcher) : dispatcher_(dispatcher) {}

  /// What a job's history says now; cheap.
  void follow(const core::Job& job);
  /// Looks at the jobs waited for, if anything has changed since the last time. Throws store::Error.
  void tell();

 private:
  Dispatcher& dispatcher_;
  std::mutex mutex_;
  std::set<core::JobId> waiting_;
  bool news_ = false;
};

}  // namespace runtime
