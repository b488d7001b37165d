#include "ranks/metric_rows.h"

namespace ranks {

store::MetricRow row_of(const core::AttemptKey& key, core::RankNumber rank, const muster::v1::StepMetric& m) {
  store::MetricRow row;
  row.job = key.job;
  row.attempt = key.number;
  row.rank = rank;
  row.step = m.step();
  if (m.has_step_ms()) row.step_ms = m.step_ms();
  if (m.has_memory_bytes()) row.memory_bytes = m.memory_bytes();
  if (m.has_memory_peak_bytes()) row.memory_peak_bytes = m.memory_peak_bytes();
  if (m.has_bytes_communicated()) row.bytes_communicated = m.bytes_communicated();
  for (const auto& value : m.values()) {
    if (schema::is_series_name(value.series())) row.values.push_back({value.series(), value.value()});
  }
  row.at_ms = m.at_ms();
  return row;
}

std::vector<store::DeclaredSeries> declared_of(const core::AttemptKey& key,
                                               const muster::v1::HeartbeatRequest& request) {
  std::vector<store::DeclaredSeries> declared;
  for (const auto& series : request.series()) {
    if (!schema::is_series_name(series.name()) || declared.size() == schema::kMostSeries) continue;
    declared.push_back({key.job,
                        {series.name(), series.unit().size() <= schema::kLongestUnit ? series.unit() : std::string(),
                         schema::better_of(series.better()), schema::over_ranks_of(series.over_ranks())}});
  }
  return declared;
}

}  // namespace ranks
