#include "runtime/newest_metrics.h"

namespace runtime {
namespace {

// An attempt that died before its first step has none; more than this many of them in a row are not looked behind.
constexpr core::AttemptNumber kAttemptsBack = 16;

// Steps can only be read forwards from a position, so the last one is searched by doubling and halving.
std::optional<store::MetricRow> last_of(store::Store& store, core::JobId job, core::AttemptNumber attempt) {
  std::optional<store::MetricRow> best;
  const auto found_after = [&](core::Step step) {
    auto rows = store.metrics(job, attempt, attempt, step, 1);
    if (rows.empty()) return false;
    best = rows.front().row;
    return true;
  };
  if (!found_after(-1)) return std::nullopt;
  core::Step stride = 1;
  while (stride < (core::Step{1} << 40) && found_after(best->step + stride)) stride *= 2;
  for (; stride > 0; stride /= 2) {
    while (found_after(best->step + stride - 1)) {
    }
  }
  return best;
}

std::optional<store::MetricRow> look_up(store::Store& store, core::JobId job, core::AttemptNumber newest) {
  for (core::AttemptNumber back = 0; back < kAttemptsBack && back < newest; ++back) {
    if (auto row = last_of(store, job, newest - back)) return row;
  }
  return std::nullopt;
}

}  // namespace

std::optional<store::MetricRow> NewestMetrics::get(core::JobId job, std::int64_t version, bool ended,
                                                   core::AttemptNumber newest_attempt) {
  if (auto row = board_.newest_metric(job)) return row;
  if (newest_attempt == 0) return std::nullopt;
  {
    std::lock_guard lock(mutex_);
    const auto found = ended_.find(job);
    if (ended && found != ended_.end() && found->second.version == version) return found->second.row;
  }
  auto row = look_up(store_, job, newest_attempt);
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
