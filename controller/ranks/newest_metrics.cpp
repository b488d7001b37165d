#include "ranks/newest_metrics.h"

#include <algorithm>
#include <set>
#include <utility>

namespace ranks {

void NewestMetrics::add(std::span<const store::MetricRow> rows, std::span<const store::DeclaredSeries> declared) {
  std::set<core::JobId> to_read;
  for (const auto& one : declared) to_read.insert(one.job);
  {
    std::lock_guard lock(mutex_);
    for (const auto& row : rows) {
      const auto found = jobs_.find(row.job);
      if (found == jobs_.end() || !merge(found->second, row)) to_read.insert(row.job);
    }
  }
  for (const auto job : to_read) {
    try {
      auto fresh = read(job);
      std::lock_guard lock(mutex_);
      enter(job, std::move(fresh));
    } catch (const std::exception&) {
      forget(job);
    }
  }
}

std::optional<store::MetricRow> NewestMetrics::get(core::JobId job) {
  auto found = known(job);
  if (!found.row) return std::nullopt;
  found.row->values.clear();
  for (const auto& series : found.series) found.row->values.push_back({series.series.name, series.value});
  return std::move(found.row);
}

std::vector<store::SeriesRow> NewestMetrics::series(core::JobId job) {
  return known(job).series;
}

NewestMetrics::Known NewestMetrics::known(core::JobId job) {
  {
    std::lock_guard lock(mutex_);
    if (const auto found = jobs_.find(job); found != jobs_.end()) return found->second;
  }
  auto fresh = read(job);
  std::lock_guard lock(mutex_);
  // What was added meanwhile is newer.
  if (const auto found = jobs_.find(job); found != jobs_.end()) return found->second;
  enter(job, fresh);
  return fresh;
}

NewestMetrics::Known NewestMetrics::read(core::JobId job) {
  return {store_.newest_metric(job), store_.series(job)};
}

void NewestMetrics::enter(core::JobId job, Known known) {
  if (!jobs_.insert_or_assign(job, std::move(known)).second) return;
  order_.push_back(job);
  if (order_.size() > kJobs) {
    jobs_.erase(order_.front());
    order_.pop_front();
  }
}

void NewestMetrics::forget(core::JobId job) {
  std::lock_guard lock(mutex_);
  if (jobs_.erase(job) > 0) std::erase(order_, job);
}

/// False: only the store knows what the series come to now.
bool NewestMetrics::merge(Known& known, const store::MetricRow& row) {
  const std::pair at(row.attempt, row.step);
  if (row.rank == 0 && (!known.row || at >= std::pair(known.row->attempt, known.row->step))) known.row = row;
  for (const auto& value : row.values) {
    const auto found =
        std::ranges::find(known.series, value.series, [](const auto& series) { return series.series.name; });
    if (found == known.series.end() || found->series.over_ranks != schema::OverRanks::kRank0) return false;
    if (row.rank != 0 || at < std::pair(found->attempt, found->step)) continue;
    found->attempt = row.attempt;
    found->step = row.step;
    found->value = value.value;
  }
  return true;
}

}  // namespace ranks
