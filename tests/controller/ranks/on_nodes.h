#pragma once

#include <vector>

#include "controller/ranks/liveness.h"

namespace ranks {

using namespace std::chrono_literals;

inline constexpr core::Millis kStart{100000};

/// Four ranks on two nodes of a scheduler, which have made a hundred steps of half a second, the last at kStart. So a
/// hang is suspected after ten seconds, and ends the attempt after a minute.
inline AttemptWatch on_nodes(bool scheduled = true) {
  const auto begin = kStart - 50s;
  AttemptWatch watch({}, 4, 1, begin);
  core::Attempt attempt;
  attempt.state = core::AttemptState::kRunning;
  if (scheduled) attempt.queued_at = core::Time{};
  attempt.ranks.resize(4);
  for (std::size_t r = 0; r < 4; ++r) attempt.ranks[r].node = r < 2 ? "n1" : "n2";
  watch.follow(attempt, begin);
  for (core::Step step = 1; step <= 100; ++step) {
    for (core::RankNumber r = 0; r < 4; ++r) watch.heard(r, {step, "step"}, begin + step * 500ms);
  }
  return watch;
}

/// These ranks say that they stand at their newest step.
inline void stand(AttemptWatch& watch, const std::vector<core::RankNumber>& ranks, core::Millis now) {
  for (const auto rank : ranks) watch.heard(rank, {100, "step"}, now);
}

}  // namespace ranks
