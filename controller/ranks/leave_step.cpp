#include "controller/ranks/leave_step.h"

#include <algorithm>
#include <cmath>

namespace ranks {
namespace {

/// An agent finds a new line of a report within two seconds. A stop takes a second from here to the rank's program.
constexpr core::Millis kPath{3000};

}  // namespace

std::optional<core::Step> leave_step(std::span<const RankPace> ranks, core::Millis interval, core::Millis grace) {
  if (ranks.empty()) return std::nullopt;
  core::Step at = 0;
  for (const auto& rank : ranks) {
    if (rank.quickest_ms <= 0) return std::nullopt;
    const auto unseen = std::max(interval, rank.told_ago) + kPath;
    const auto steps = std::ceil(static_cast<double>(unseen.count()) / rank.quickest_ms) + 1;
    constexpr double kMost = 1e9;
    at = std::max(at, rank.step + static_cast<core::Step>(std::min(steps, kMost)));
  }
  const auto is_too_far = [&](const RankPace& rank) {
    return static_cast<double>(at - rank.step) * rank.slowest_ms > static_cast<double>(grace.count()) / 2;
  };
  return std::ranges::any_of(ranks, is_too_far) ? std::nullopt : std::optional(at);
}

}  // namespace ranks
