#include "store/metric_rows.h"

#include <algorithm>
#include <cmath>

namespace store {

std::optional<double> value_of(const MetricRow& row, std::string_view series) {
  const auto found = std::ranges::find(row.values, series, &SeriesValue::series);
  return found == row.values.end() ? std::nullopt : std::optional(found->value);
}

void OverRanks::add(core::RankNumber rank, double value) {
  if (rule_ == schema::OverRanks::kRank0 && rank != 0) return;
  ++count_;
  if (rule_ == schema::OverRanks::kMax) {
    // NaN wins over every number: it tells that something is wrong.
    value_ = count_ == 1 || std::isnan(value) || value > value_ ? value : value_;
  } else {
    value_ += value;
  }
}

std::optional<double> OverRanks::value() const {
  if (count_ == 0) return std::nullopt;
  return rule_ == schema::OverRanks::kMean ? value_ / count_ : value_;
}

}  // namespace store
