#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "core/job.h"

namespace runtime {

/// How many jobs each user has in each partition: handed over to the scheduler (or on the way to it), and waiting to
/// run, here or in the scheduler's queue; one in that queue counts as both. It follows the jobs' histories, so it is
/// right again after a restart. Thread-safe.
///
/// Which partition a job goes to is asked only when somebody counts: without limits nobody pays for it.
class UserJobs {
 public:
  /// Of a job that has not ended; empty: none. May throw, and is asked again then.
  using PartitionOf = std::function<std::string(core::JobId)>;
  explicit UserJobs(PartitionOf partition_of) : partition_of_(std::move(partition_of)) {}

  struct Counts {
    std::uint32_t handed_over = 0, waiting = 0;
    bool operator==(const Counts&) const = default;
  };

  /// What the job's history says.
  void follow(const core::Job& job);
  Counts of(const std::string& partition, const std::string& user);
  /// Jobs of all users that have not ended.
  std::uint32_t open_in(const std::string& partition);
  /// Throws std::runtime_error, as enter() does, if it can't be read now.
  std::string partition_of(core::JobId job);

  /// Keeps a place for the job's next attempt if fewer than `most` are taken; once kept, asking again is fine.
  bool enter(const core::Job& job, std::uint32_t most);
  /// The launch is over: the place is free again unless an attempt is there.
  void leave(core::JobId job);
  /// True: it has a place already.
  bool has_place(core::JobId job);

 private:
  struct Entry {
    std::string user, partition;
    bool taken = false;     // has an attempt
    bool waits = true;      // none that runs
    bool entering = false;  // is being launched
    bool ended = false;     // and is here only as long as it is entering
    bool placed() const { return taken || entering; }
  };
  using Key = std::pair<std::string, std::string>;  // partition, user

  void count(const Entry& entry, std::uint32_t by);
  /// Finds out the partitions of those that are new.
  void settle();
  /// The same; throws std::runtime_error if that of this one can't be.
  void settle(core::JobId job);

  const PartitionOf partition_of_;
  std::mutex mutex_;
  std::map<core::JobId, Entry> jobs_;
  std::map<core::JobId, Entry> unsettled_;  // of which the partition is not known yet
  std::map<Key, Counts> counts_;
};

}  // namespace runtime
