#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/types.h"

namespace ranks {

/// Which ranks of one attempt are slow. A rank is slow once its step has taken more than kSlow times the median over
/// all ranks in each of the last kSteps steps. One quick step ends that: a rank that is slow now and then is a busy
/// machine.
///
/// Ranks report at different moments, so a step is judged when all of them have reported it. With fewer than
/// kFewestRanks nobody is slow: of two, the median lies between both, and neither is the usual one. Not thread-safe.
class Stragglers {
 public:
  static constexpr double kSlow = 1.2;
  static constexpr std::uint32_t kSteps = 50;
  static constexpr std::uint32_t kFewestRanks = 3;
  /// Steps that wait for ranks, and their times over all ranks: beyond them the oldest step is not judged. One
  /// heartbeat brings at most 512 steps.
  static constexpr std::size_t kMostWaiting = 1024;
  static constexpr std::size_t kMostTimes = 1 << 18;

  explicit Stragglers(std::uint32_t ranks);
  /// A step's time as a rank reported it; told again, or of a step that was judged, it changes nothing.
  void add(core::RankNumber rank, core::Step step, double step_ms);
  /// How many times the median the rank's steps took, over all steps since it became slow; nullopt: it is not slow.
  std::optional<double> slowness(core::RankNumber rank) const;

 private:
  struct Rank {
    std::uint32_t slow_steps = 0;  // in a row
    double ratios = 0;             // their sum
  };
  struct Waiting {
    std::vector<float> step_ms;  // by rank; 0: not reported
    std::uint32_t reported = 0;
  };
  void judge(const std::vector<float>& step_ms);

  std::vector<Rank> ranks_;
  std::map<core::Step, Waiting> waiting_;
  core::Step judged_ = -1;
};

}  // namespace ranks
