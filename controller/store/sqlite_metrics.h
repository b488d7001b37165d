#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "store/metric_rows.h"
#include "store/sqlite_connection.h"
#include "store/sqlite_thinning.h"

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

void write_metrics(Connection& connection, KnownSeries& known, MetricBuckets& buckets, std::span<const MetricRow> rows,
                   std::span<const DeclaredSeries> declared);
/// Deletes at most `most` rows of the job. Returns the number of deleted rows.
std::uint32_t erase_metrics(Connection& connection, core::JobId job, std::uint32_t most);

std::vector<StepRow> read_metrics(Connection& connection, core::JobId job, core::AttemptNumber attempt,
                                  core::AttemptNumber after_attempt, core::Step after_step, std::uint32_t limit);
std::optional<MetricRow> read_newest_metric(Connection& connection, core::JobId job);
std::vector<SeriesRow> read_series(Connection& connection, core::JobId job);

}  // namespace store
