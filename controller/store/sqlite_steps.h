#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "controller/store/metric_rows.h"
#include "controller/store/sqlite_database.h"

namespace store {

// The table step_rows: one step over the ranks that have told it. A transaction that stores rows of ranks adds them to
// the rows of their steps, so nobody who reads has to put the ranks together, and a step costs the same whether two
// ranks have told it or thousands.

struct StepKey {
  core::JobId job = 0;
  core::AttemptNumber attempt = 0;
  core::Step step = 0;
  auto operator<=>(const StepKey&) const = default;
};

/// Totals of what ranks told of one step.
struct StepTotal {
  std::uint32_t ranks = 0;
  bool is_told = false;  // by rank 0; until then nobody sees the step
  std::int64_t at_ms = 0;
  std::optional<double> step_ms = std::nullopt;
  std::optional<std::int64_t> memory_bytes = std::nullopt;
  std::optional<std::int64_t> memory_peak_bytes = std::nullopt;
  std::optional<std::int64_t> bytes_communicated = std::nullopt;
  std::map<std::int64_t, RankValues> values = {};  // by the number of the series

  /// Adds what a rank measured of itself, and that it has told the step. The values of series are added one by one.
  void add(const MetricRow& row);
  /// Adds what other ranks told. Sums are made in this order, so their last digit may depend on it.
  void add(const StepTotal& others);
  bool empty() const { return ranks == 0 && values.empty(); }
};

/// The values of a step's series as bytes: for each series its number and twice the count of ranks, plus one if rank 0
/// is among them, both as numbers of 7 bits a byte with the lowest first; then eight bytes each, the value of the only
/// rank, or sum, maximum and the value of rank 0.
std::string encode_values(const std::map<std::int64_t, RankValues>& values);
/// Throws Error kCorrupt.
std::map<std::int64_t, RankValues> decode_values(std::string_view bytes);

/// The columns of step_rows from `ranks` on.
#define MUSTER_STEP_COLUMNS \
  "ranks, is_told, at_ms, step_ms, memory_bytes, memory_peak_bytes, bytes_communicated, series"
/// Reads these columns from `column` on.
StepTotal read_step_total(const Query& row, int column);

/// Adds to the row of the step, or makes it.
void add_to_step(Connection& connection, const StepKey& key, const StepTotal& more);

}  // namespace store
