#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/durable_file.h"
#include "controller/core/job.h"

namespace common {

/// Why something does not start, and what to do about it: the one vocabulary of `muster why`.
struct Wait {
  std::string why;                                 // one sentence
  std::string action;                              // empty: nothing
  std::optional<core::Time> until = std::nullopt;  // when this wait ends, where that is known
  bool operator==(const Wait&) const = default;
};

/// The advice for whatever ends without anybody's help.
inline constexpr const char* kStartsByItself = "It starts by itself.";

/// The advice on what people can do meanwhile about a write that failed so.
inline const char* make_room(int error) {
  return base::lacks_descriptors(error) ? "Raise musterd's limit of open files (LimitNOFILE, ulimit -n), or wait until "
                                          "other jobs have ended: it starts by itself."
                                        : "Make room there: it starts by itself.";
}

/// Counters that watchers wait on: one that grows with every change, and for each job the count at its newest change.
/// Remembers kJobs jobs; of one forgotten it says "perhaps changed", which costs its watchers one look. Thread-safe.
class Changes {
 public:
  static constexpr std::size_t kJobs = 8192;

  void bump(core::JobId job);
  /// Waits until `job` (0: any) changed after `seen`, at most `timeout`; returns the newest count.
  std::uint64_t wait(core::JobId job, std::uint64_t seen, core::Millis timeout);
  /// The count at the newest change of `job`; 0: of any.
  std::uint64_t newest(core::JobId job) const {
    const std::lock_guard lock(mutex_);
    return newest_locked(job);
  }
  /// Lets every waiter go, now and later.
  void close();

 private:
  std::uint64_t newest_locked(core::JobId job) const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t count_ = 1;
  std::uint64_t forgotten_ = 1;  // the newest change of any job no longer in jobs_
  std::unordered_map<core::JobId, std::uint64_t> jobs_;
  std::deque<core::JobId> order_;  // of first change
  bool closed_ = false;
};

}  // namespace common
