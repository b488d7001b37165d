#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"
#include "schema/series.h"

namespace store {

/// One number of one series at one step.
struct SeriesValue {
  std::string series;  // its name
  double value = 0;
  bool operator==(const SeriesValue&) const = default;
};

/// One optimizer step of one rank: what the rank measured of itself, and the values of its series. The key is (job,
/// attempt, rank, step). A stored value never changes. Adding the same row again changes nothing; a row with further
/// series adds these series.
struct MetricRow {
  core::JobId job = 0;
  core::AttemptNumber attempt = 0;
  core::RankNumber rank = 0;
  core::Step step = 0;
  std::optional<double> step_ms = std::nullopt;
  std::optional<std::int64_t> memory_bytes = std::nullopt;
  std::optional<std::int64_t> memory_peak_bytes = std::nullopt;
  std::optional<std::int64_t> bytes_communicated = std::nullopt;
  std::int64_t at_ms = 0;
  std::vector<SeriesValue> values = {};
  bool operator==(const MetricRow&) const = default;
};

/// nullopt: the row has no value of this series.
std::optional<double> value_of(const MetricRow& row, std::string_view series);

/// One step over all ranks. Time and memory are the maximum over the ranks, bytes communicated the sum. Each series has
/// its own rule, schema::OverRanks. The series are in the order in which they first appeared in the job.
struct StepRow {
  MetricRow row;  // rank is 0
  std::uint32_t ranks = 0;
};

/// A rank's declaration of a series.
struct DeclaredSeries {
  core::JobId job = 0;
  schema::Series series;
};

/// A series of a job with its newest value over the ranks.
struct SeriesRow {
  schema::Series series;
  core::AttemptNumber attempt = 0;
  core::Step step = 0;
  double value = 0;
};

/// Combines the values that ranks reported for one step of one series into one value.
class OverRanks {
 public:
  explicit OverRanks(schema::OverRanks rule) : rule_(rule) {}
  void add(core::RankNumber rank, double value);
  /// nullopt: no rank's value counts.
  std::optional<double> value() const;

 private:
  schema::OverRanks rule_;
  std::uint32_t count_ = 0;
  double value_ = 0;
};

}  // namespace store
