#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "controller/store/metric_rows.h"
#include "controller/store/sqlite_database.h"
#include "controller/store/sqlite_steps.h"

namespace store {

/// The curve of the series with this number.
constexpr std::int64_t curve_of_series(std::int64_t id) {
  return kFirstSeriesCurve - 1 + id;
}

/// The writing connection's copy of the table of series, so that writing a value costs one statement. Call clear()
/// after a failed transaction: the copy may hold rows that were not stored.
class KnownSeries {
 public:
  static constexpr std::size_t kMostJobs = 1024;
  struct Entry {
    std::int64_t id = 0;
    spec::OverRanks over_ranks = spec::OverRanks::kMean;
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

/// Facts that the writing connection knows of attempts that report: how far their buckets are written, what of them has
/// aged out, and the newest hour in which rows were stored. It writes the tables metric_buckets, metric_attempts and
/// metric_hours.
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
  static constexpr core::Step kNothingAged = std::numeric_limits<core::Step>::min();

  struct Progress {
    core::Step newest = -1;
    std::array<core::Step, kWidths.size()> settled{};  // buckets of this level hold all steps before
    std::set<core::Step> late;  // the first steps of the narrowest buckets that must be written again
    /// The first steps whose rows of ranks are there, and whose step rows are there. Only at the end of an attempt the
    /// second is later: the last bucket, which is not full, has no rows either.
    core::Step rank_rows_from = kNothingAged, step_rows_from = kNothingAged;
    std::int64_t hour = -1;  // the newest in which rows were stored
    bool has_left_out = false;
    std::int64_t left_out = 0;  // rows that the transaction has left out
  };

  Progress& of(Connection& connection, core::JobId job, core::AttemptNumber attempt);
  /// False: rows of ranks of this step have aged out, so nobody knows whether this one came before.
  /// `pending`: what the transaction has stored of the step, and not yet added to its row.
  bool takes(Connection& connection, const MetricRow& row, const StepTotal& pending);
  /// A row of this step has been written, in this hour since 1970.
  void touch(Connection& connection, const StepKey& key, std::int64_t hour);
  /// Writes how many rows were left out.
  void write_left_out(Connection& connection);
  /// Writes the buckets that are due.
  void settle(Connection& connection);
  /// Writes the buckets of an attempt whose rows are there already. `is_over`: no further step will come, so the last
  /// bucket is written although it is not full. Returns false if another transaction must write the rest.
  bool settle_stored(Connection& connection, core::JobId job, core::AttemptNumber attempt, bool is_over);
  /// The rows of the attempt age as if the newest ones had been stored in this hour.
  void put_off(Connection& connection, core::JobId job, core::AttemptNumber attempt, std::int64_t hour);
  /// A series combines its ranks in another way now. The job's buckets are deleted, and its next rows write them again,
  /// but for those whose steps have aged out.
  void drop(Connection& connection, core::JobId job);
  void forget(core::JobId job);
  void clear();
  /// Bounds the memory. To be called between transactions.
  void trim() {
    if (attempts_.size() >= kMostAttempts) clear();
  }
  /// A sentence for each attempt of which rows were left out for the first time.
  std::vector<std::string> take_words() { return std::exchange(words_, {}); }

 private:
  using Key = std::pair<core::JobId, core::AttemptNumber>;
  static bool settle_one(Connection& connection, const Key& key, Progress& progress, bool is_over);
  /// The rows of an attempt are as old as this hour at most.
  void note_hour(Connection& connection, core::JobId job, core::AttemptNumber attempt, std::int64_t hour);

  std::map<Key, Progress> attempts_;
  std::set<Key> touched_;
  std::set<Key> leaving_out_;
  std::vector<std::string> words_;
};

/// `hour`: since 1970, of now.
void write_metrics(Connection& connection, KnownSeries& known, MetricBuckets& buckets, std::span<const MetricRow> rows,
                   std::span<const DeclaredSeries> declared, std::int64_t hour);
/// Deletes at most `most` rows of the job. Returns the number of deleted rows.
std::uint32_t erase_metrics(Connection& connection, core::JobId job, std::uint32_t most);
/// Deletes at most `most` rows of the attempts after this one. Returns the number of deleted rows.
std::uint32_t erase_metrics_after(Connection& connection, core::JobId job, core::AttemptNumber attempt,
                                  std::uint32_t most);

std::vector<StepRow> read_metrics(Connection& connection, core::JobId job, core::AttemptNumber attempt,
                                  core::AttemptNumber after_attempt, core::Step after_step, std::uint32_t limit);
std::optional<MetricRow> read_newest_metric(Connection& connection, core::JobId job);
std::vector<SeriesRow> read_series(Connection& connection, core::JobId job);
std::int64_t read_left_out(Connection& connection, core::JobId job);

// sqlite_thinning.cpp
Thinned read_thinned(Connection& connection, const ThinRequest& request);

}  // namespace store
