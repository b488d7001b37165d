#include "ranks/stragglers.h"

#include <algorithm>
#include <cmath>

namespace ranks {
namespace {

double median_of(std::vector<float> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (static_cast<double>(*middle) + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

Stragglers::Stragglers(std::uint32_t ranks) : ranks_(ranks < kFewestRanks ? 0 : ranks) {}

void Stragglers::add(core::RankNumber rank, core::Step step, double step_ms) {
  if (rank >= ranks_.size() || step <= judged_ || !std::isfinite(step_ms) || step_ms <= 0) return;
  auto& waiting = waiting_[step];
  if (waiting.step_ms.empty()) waiting.step_ms.resize(ranks_.size());
  if (waiting.step_ms[rank] > 0) return;
  waiting.step_ms[rank] = static_cast<float>(step_ms);
  if (++waiting.reported == ranks_.size()) {
    judge(waiting.step_ms);
    judged_ = step;
    // What is older was never reported by all of them, and will not be: each reports its steps in order.
    waiting_.erase(waiting_.begin(), waiting_.upper_bound(step));
  } else if (waiting_.size() > 1 && (waiting_.size() > kMostWaiting || waiting_.size() * ranks_.size() > kMostTimes)) {
    waiting_.erase(waiting_.begin());
  }
}

void Stragglers::judge(const std::vector<float>& step_ms) {
  const double median = median_of(step_ms);
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const double ratio = step_ms[r] / median;
    if (ratio > kSlow) {
      ++ranks_[r].slow_steps;
      ranks_[r].ratios += ratio;
    } else {
      ranks_[r] = {};
    }
  }
}

std::optional<double> Stragglers::slowness(core::RankNumber rank) const {
  if (rank >= ranks_.size() || ranks_[rank].slow_steps < kSteps) return std::nullopt;
  return ranks_[rank].ratios / ranks_[rank].slow_steps;
}

}  // namespace ranks
