#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "store/metrics.h"
#include "store/sqlite_connection.h"

namespace store {

/// The writing connection's copy of the table of series, so that writing a value costs one statement. Call clear()
/// after a failed transaction: the copy may hold rows that were not stored.
class KnownSeries {
 public:
  static constexpr std::size_t kMostJobs = 1024;
  struct Entry {
    std::int64_t id = 0;
    schema::OverRanks over_ranks = schema::OverRanks::kMean;
    core::AttemptNumber attempt = 0;  // of the newest value
    core::Step step = -1;             // of the newest value
    bool moved = false;               // the table has an older newest value
  };
  using Job = std::map<std::string, Entry, std::less<>>;

  /// The series of a job. The first call reads them from the table.
  Job& of(Connection& connection, core::JobId job);
  void forget(core::JobId job) { jobs_.erase(job); }
  void clear() { jobs_.clear(); }
  /// Empties a full copy. Call it between transactions only.
  void trim() {
    if (jobs_.size() >= kMostJobs) jobs_.clear();
  }

 private:
  std::map<core::JobId, Job> jobs_;
};

/// Writes the table metric_buckets, for the writing connection.
///
/// A transaction that takes an attempt kLateSteps past a bucket writes the bucket, from the rows of its steps. A row
/// that comes later writes its bucket again. Readers read steps without a bucket from their rows. Only the end of an
/// attempt has such steps. clear() must be called after a failed transaction.
class MetricBuckets {
 public:
  /// Ranks report a step at different times. A rank that is further behind makes a bucket be written again.
  static constexpr core::Step kLateSteps = 128;
  /// The most steps that one transaction puts into buckets.
  static constexpr int kMostSteps = 32'768;
  static constexpr std::size_t kMostAttempts = 1024;

  /// A row of this step has been written.
  void touch(Connection& connection, core::JobId job, core::AttemptNumber attempt, core::Step step);
  /// Writes the buckets that are due.
  void settle(Connection& connection);
  /// Writes the buckets of an attempt of an older database. Returns false if another transaction must write the rest.
  bool settle_stored(Connection& connection, core::JobId job, core::AttemptNumber attempt);
  /// A series combines its ranks in another way now. The job's buckets are deleted, and its next rows write them again.
  void drop(Connection& connection, core::JobId job);
  void forget(core::JobId job);
  void clear();
  /// Bounds the memory. To be called between transactions.
  void trim() {
    if (attempts_.size() >= kMostAttempts) clear();
  }

 private:
  using Key = std::pair<core::JobId, core::AttemptNumber>;
  struct Progress {
    core::Step newest = -1;
    std::array<core::Step, kWidths.size()> settled{};  // buckets of this level hold all steps before
    std::set<core::Step> late;  // the first steps of the narrowest buckets that must be written again
  };
  Progress& of(Connection& connection, const Key& key);
  static bool settle_one(Connection& connection, const Key& key, Progress& progress);

  std::map<Key, Progress> attempts_;
  std::set<Key> touched_;
};

void write_metrics(Connection& connection, KnownSeries& known, MetricBuckets& buckets, std::span<const MetricRow> rows,
                   std::span<const DeclaredSeries> declared);
/// Deletes at most `most` rows of the job. Returns the number of deleted rows.
std::uint32_t erase_metrics(Connection& connection, core::JobId job, std::uint32_t most);

std::vector<StepRow> read_metrics(Connection& connection, core::JobId job, core::AttemptNumber attempt,
                                  core::AttemptNumber after_attempt, core::Step after_step, std::uint32_t limit);
std::optional<MetricRow> read_newest_metric(Connection& connection, core::JobId job);
std::vector<SeriesRow> read_series(Connection& connection, core::JobId job);

// sqlite_thinning.cpp
Thinned read_thinned(Connection& connection, const ThinRequest& request);

/// Writes the buckets of an older database that has none. A million steps take seconds.
void settle_older(Connection& connection);

}  // namespace store
