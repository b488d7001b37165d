#include "cli/results_curve.h"

#include <cmath>

namespace cli {

void Curve::add(const muster::v1::Metric& metric) {
  if (metric.attempt() != attempt_) values_.erase(values_.lower_bound(metric.step()), values_.end());
  attempt_ = metric.attempt();
  if (metric_ == "validation_loss" && !metric.has_validation_loss()) return;
  const double value = metric_ == "validation_loss" ? metric.validation_loss()
                       : metric_ == "tokens_per_s"  ? metric.tokens_per_s()
                                                    : metric.loss();
  if (std::isfinite(value)) values_[metric.step()] = value;
}

std::optional<Curve::Point> Curve::last() const {
  if (values_.empty()) return std::nullopt;
  return Point{values_.rbegin()->first, values_.rbegin()->second};
}

std::optional<Curve::Point> Curve::best(Best best) const {
  std::optional<Point> found;
  for (const auto& [step, value] : values_) {
    if (!found || (best == Best::kMin ? value < found->value : value > found->value)) found = {step, value};
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
