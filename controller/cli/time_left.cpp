#include "cli/time_left.h"

#include <algorithm>

namespace cli {

void TimeLeft::see(const muster::v1::Job& job, Time now) {
  const std::uint32_t attempt = job.attempts_size() > 0 ? job.attempts().rbegin()->number() : 0;
  if (attempt != attempt_ || (!samples_.empty() && job.step() < samples_.back().step)) samples_.clear();
  attempt_ = attempt;
  total_ = job.steps_total();
  trains_ = job.state() == "running";
  step_ms_ = 0;
  for (const auto& rank : job.ranks()) step_ms_ = std::max(step_ms_, rank.step_ms());
  if (samples_.empty() || samples_.back().step != job.step()) samples_.push_back({now, job.step()});
  while (samples_.size() > 2 && (now - samples_.front().at > kWindow || samples_.size() > kMostSamples)) {
    samples_.pop_front();
  }
}

std::optional<std::chrono::milliseconds> TimeLeft::left() const {
  if (!trains_ || total_ <= 0 || samples_.empty() || samples_.back().step <= 0) return std::nullopt;
  const auto& first = samples_.front();
  const auto& last = samples_.back();
  const auto steps = static_cast<double>(last.step - first.step);
  const double seen_ms = std::chrono::duration<double, std::milli>(last.at - first.at).count();
  const double step_ms = steps > 0 && seen_ms > 0 ? seen_ms / steps : step_ms_;
  if (step_ms <= 0) return std::nullopt;
  const auto to_go = static_cast<double>(std::max<std::int64_t>(0, total_ - last.step));
  const std::chrono::milliseconds left(static_cast<std::int64_t>(to_go * step_ms));
  if (left < std::chrono::seconds(1)) return std::nullopt;
  return left;
}

}  // namespace cli
