#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/job.h"
#include "store/store.h"

namespace jobs {

using JobPtr = std::shared_ptr<const core::Job>;

/// The newest durable state of jobs: all open jobs and the kEndedInMemory that ended last are in memory, the others are
/// read from the store. Thread-safe; only one thread calls put() and reload().
class JobTable {
 public:
  static constexpr std::size_t kEndedInMemory = 512;
  explicit JobTable(store::Store& store) : store_(store) {}

  /// Null if there is no such job. Throws store::Error.
  JobPtr get(core::JobId id) const;
  /// In the order of their ids.
  std::vector<JobPtr> open() const;
  /// Puts the jobs that have not ended into memory. Throws store::Error.
  void load_open();
  /// Takes a state that is durable.
  void put(const JobPtr& job);
  /// Takes what the store says, if it has the job. Throws store::Error.
  void reload(core::JobId id);

 private:
  store::Store& store_;
  mutable std::mutex mutex_;
  std::unordered_map<core::JobId, JobPtr> jobs_;
  std::deque<core::JobId> ended_;  // the oldest end first; a job that was requeued since may be open again
};

}  // namespace jobs
