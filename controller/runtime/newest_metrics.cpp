#include "runtime/newest_metrics.h"

namespace runtime {

void NewestMetrics::add(const store::MetricRow& row) {
  if (row.rank != 0) return;
  std::lock_guard lock(mutex_);
  merge(known(row.job), row);
}

std::optional<store::MetricRow> NewestMetrics::get(core::JobId job) {
  const auto answer = [](const Known& known) {
    auto row = known.row;
    if (!row) return row;
    row->values.clear();
    for (const auto& [series, value] : known.values) row->values.push_back({series, value.second});
    return row;
  };
  {
    std::lock_guard lock(mutex_);
    const auto found = jobs_.find(job);
    if (found != jobs_.end() && found->second.is_read) return answer(found->second);
  }
  const auto newest = store_.newest_metric(job);
  const auto series = store_.series(job);
  std::lock_guard lock(mutex_);
  auto& entry = known(job);
  if (newest) merge(entry, *newest);
  for (const auto& one : series) merge(entry, one.series.name, {one.attempt, one.step}, one.value);
  entry.is_read = true;
  return answer(entry);
}

NewestMetrics::Known& NewestMetrics::known(core::JobId job) {
  const auto [place, fresh] = jobs_.try_emplace(job);
  if (!fresh) return place->second;
  order_.push_back(job);
  if (order_.size() > kJobs) {
    jobs_.erase(order_.front());
    order_.pop_front();
  }
  return jobs_[job];
}

void NewestMetrics::merge(Known& known, const store::MetricRow& row) {
  const Position at{row.attempt, row.step};
  if (!known.row || at >= Position{known.row->attempt, known.row->step}) known.row = row;
  for (const auto& value : row.values) merge(known, value.series, at, value.value);
}

void NewestMetrics::merge(Known& known, const std::string& series, Position at, double value) {
  const auto [place, fresh] = known.values.try_emplace(series, at, value);
  if (!fresh && at >= place->second.first) place->second = {at, value};
}

}  // namespace runtime
