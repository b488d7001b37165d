#include "cli/results_curve.h"

#include <cmath>

namespace cli {

void Curve::add(const muster::v1::Metric& metric) {
  if (metric.attempt() != attempt_) values_.erase(values_.lower_bound(metric.step()), values_.end());
  attempt_ = metric.attempt();
  const auto value = metric.series().find(series_);
  if (value != metric.series().end() && std::isfinite(value->second)) values_[metric.step()] = value->second;
}

std::optional<Curve::Point> Curve::last() const {
  if (values_.empty()) return std::nullopt;
  return Point{values_.rbegin()->first, values_.rbegin()->second};
}

std::optional<Curve::Point> Curve::best(schema::Better better) const {
  std::optional<Point> found;
  for (const auto& [step, value] : values_) {
    const bool is_better = !found || (better == schema::Better::kHigher ? value > found->value : value < found->value);
    if (is_better) found = {step, value};
  }
  return found;
}

std::optional<Curve::Point> Curve::smoothed() const {
  if (values_.empty()) return std::nullopt;
  double sum = 0;
  int count = 0;
  for (auto at = values_.rbegin(); at != values_.rend() && count < kSmoothedSteps; ++at, ++count) sum += at->second;
  return Point{values_.rbegin()->first, sum / count};
}

}  // namespace cli
