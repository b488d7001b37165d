#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "store/metric_rows.h"
#include "store/sqlite_connection.h"

namespace store {

/// What the writing connection knows of the table of series, so that a value costs one statement. Forgets jobs that it
/// has not seen for long. After a transaction that failed it must be cleared: it may know what is not stored.
class KnownSeries {
 public:
  static constexpr std::size_t kMostJobs = 1024;
  struct Entry {
    std::int64_t id = 0;
    schema::OverRanks over_ranks = schema::OverRanks::kMean;
    core::AttemptNumber attempt = 0;  // of the newest value
    core::Step step = -1;
    bool moved = false;  // and the table does not know yet
  };
  using Job = std::map<std::string, Entry, std::less<>>;

  /// Those of a job, read at the first time.
  Job& of(Connection& connection, core::JobId job);
  void forget(core::JobId job) { jobs_.erase(job); }
  void clear() { jobs_.clear(); }
  /// Makes room, where there is little. Between transactions only.
  void trim() {
    if (jobs_.size() >= kMostJobs) jobs_.clear();
  }

 private:
  std::map<core::JobId, Job> jobs_;
};

void write_metrics(Connection& connection, KnownSeries& known, std::span<const MetricRow> rows,
                   std::span<const DeclaredSeries> declared);
/// Deletes at most so many rows of a job; returns how many it deleted.
std::uint32_t erase_metrics(Connection& connection, core::JobId job, std::uint32_t most);

std::vector<StepRow> read_metrics(Connection& connection, core::JobId job, core::AttemptNumber attempt,
                                  core::AttemptNumber after_attempt, core::Step after_step, std::uint32_t limit);
std::optional<MetricRow> read_newest_metric(Connection& connection, core::JobId job);
std::vector<SeriesRow> read_series(Connection& connection, core::JobId job);

}  // namespace store
