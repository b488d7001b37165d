#include "runtime/newest_metrics.h"

namespace runtime {

std::optional<store::MetricRow> NewestMetrics::get(core::JobId job, std::int64_t version, bool ended,
                                                   core::AttemptNumber newest_attempt) {
  if (auto row = board_.newest_metric(job)) return row;
  if (newest_attempt == 0) return std::nullopt;
  {
    std::lock_guard lock(mutex_);
    const auto found = ended_.find(job);
    if (ended && found != ended_.end() && found->second.version == version) return found->second.row;
  }
  auto row = store_.newest_metric(job);
  if (!ended) return row;
  std::lock_guard lock(mutex_);
  if (ended_.insert_or_assign(job, Known{version, row}).second) order_.push_back(job);
  if (order_.size() > kEndedJobs) {
    ended_.erase(order_.front());
    order_.pop_front();
  }
  return row;
}

}  // namespace runtime
