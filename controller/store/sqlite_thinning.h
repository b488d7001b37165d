#pragma once

#include <array>
#include <map>
#include <set>
#include <utility>

#include "store/sqlite_connection.h"
#include "store/thinning.h"

namespace store {

/// Keeps the stored buckets of metric_buckets, for the writing connection.
///
/// A bucket is written when the attempt is kLateSteps past it, from the rows of its steps, in the transaction that
/// brings the newest of them. A row that comes later still writes its bucket anew. A step that is in no bucket yet is
/// read from its rows, so buckets may be missing at an attempt's end, and only there. After a transaction that failed
/// clear() must be called.
class MetricBuckets {
 public:
  /// Ranks report a step at different times. A rank that is further behind costs a bucket written twice.
  static constexpr core::Step kLateSteps = 128;
  /// Most steps that one transaction puts into buckets.
  static constexpr int kMostSteps = 32'768;
  static constexpr std::size_t kMostAttempts = 1024;

  /// A row of this step has been written.
  void touch(Connection& connection, core::JobId job, core::AttemptNumber attempt, core::Step step);
  /// Writes the buckets that are due.
  void settle(Connection& connection);
  /// Writes the buckets of an attempt of an older database; false: some are left for another transaction.
  bool settle_stored(Connection& connection, core::JobId job, core::AttemptNumber attempt);
  /// The values over the ranks are others now: the buckets of the job go, and come again with its next rows.
  void drop(Connection& connection, core::JobId job);
  void forget(core::JobId job);
  void clear();
  /// Makes room, where there is little. Between transactions only.
  void trim() {
    if (attempts_.size() >= kMostAttempts) clear();
  }

 private:
  using Key = std::pair<core::JobId, core::AttemptNumber>;
  struct Progress {
    core::Step newest = -1;
    std::array<core::Step, kWidths.size()> settled{};  // steps before are in buckets of this level
    std::set<core::Step> late;                         // narrowest buckets to be written anew, by their first step
  };
  Progress& of(Connection& connection, const Key& key);
  static bool settle_one(Connection& connection, const Key& key, Progress& progress);

  std::map<Key, Progress> attempts_;
  std::set<Key> touched_;
};

Thinned read_thinned(Connection& connection, const ThinRequest& request);

/// Puts what an older database holds into buckets, if it is not done yet. Seconds for a million steps.
void settle_older(Connection& connection);

}  // namespace store
