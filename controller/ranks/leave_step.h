#pragma once

#include <optional>
#include <span>

#include "controller/core/types.h"

namespace ranks {

/// How fast one rank goes, as it has reported.
struct RankPace {
  core::Step step = 0;                     // the newest it has done
  double quickest_ms = 0, slowest_ms = 0;  // of its newest steps; 0: not known
  core::Millis told_ago{0};                // when it said so
};

/// The step after which all ranks leave, so that none of them waits for another that has left already. It is so far
/// ahead that the stop file lies beside every rank before any rank gets there. nullopt: no rank has told of steps, or
/// one could not get there within half of `grace`; then each rank leaves at once. `ranks`: those that have reported
/// steps. `interval`: between two heartbeats.
std::optional<core::Step> leave_step(std::span<const RankPace> ranks, core::Millis interval, core::Millis grace);

}  // namespace ranks
