#include "store/metric_rows.h"

#include <algorithm>
#include <cmath>

namespace store {
namespace {

template <typename Number, typename Combine>
void combine(std::optional<Number>& into, const std::optional<Number>& other, Combine with) {
  if (other) into = into ? with(*into, *other) : *other;
}

}  // namespace

std::optional<double> value_of(const MetricRow& row, std::string_view series) {
  const auto found = std::ranges::find(row.values, series, &SeriesValue::series);
  return found == row.values.end() ? std::nullopt : std::optional(found->value);
}

void merge(StepRow& step, const MetricRow& row) {
  const auto most = [](auto a, auto b) { return std::max(a, b); };
  ++step.ranks;
  combine(step.row.step_ms, row.step_ms, most);
  combine(step.row.memory_bytes, row.memory_bytes, most);
  combine(step.row.memory_peak_bytes, row.memory_peak_bytes, most);
  combine(step.row.bytes_communicated, row.bytes_communicated, [](auto a, auto b) { return a + b; });
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
