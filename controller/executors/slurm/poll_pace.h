#pragma once

#include <algorithm>
#include <optional>

#include "controller/core/types.h"

namespace executors::on_slurm {

/// When Slurm is asked for the next listing. slurmctld holds its job lock while it makes one, so listings are few, and
/// fewer the longer one takes.
///
/// - Without an attempt: one in kIdleTimes intervals, to notice what an earlier controller has left.
/// - At rest, where every attempt waits in Slurm's queue or has all its tasks heard: one in kRestTimes intervals. Tasks
///   tell what happens, and something that happens ends the rest.
/// - Else one an interval: an attempt was just handed over, or its tasks are not heard, or it ends.
/// - At once (kUrgent), where an end waits for Slurm's word or a stop for its number: kBurst times in a row, and then
///   one an interval like the others.
/// - Never sooner than kShare times what the last listing took, though after kLongest at the latest. While squeue fails
///   at once (kAtOnce) Slurm makes no listing, and nothing is to be spared.
///
/// Pure: times are passed in. For one thread.
class PollPace {
 public:
  enum class Need { kIdle, kRest, kUsual, kUrgent };

  static constexpr int kIdleTimes = 10;
  static constexpr int kRestTimes = 5;
  static constexpr int kBurst = 4;
  static constexpr int kShare = 20;
  static constexpr core::Millis kLongest{20'000};
  static constexpr core::Millis kAtOnce{1'000};

  /// `urgent`: between two listings of a burst.
  PollPace(core::Millis interval, core::Millis urgent) : interval_(interval), urgent_(urgent) {}

  bool is_due(core::Millis now, Need need) const {
    if (!begun_at_) return true;
    const auto passed = now - *begun_at_;
    const auto share = std::min(took_ * kShare, kLongest);
    if (passed < share) return false;
    switch (need) {
      case Need::kIdle:
        return passed >= interval_ * kIdleTimes;
      case Need::kRest:
        return passed >= interval_ * kRestTimes;
      case Need::kUrgent:
        if (passed >= urgent_ && credit(now) >= interval_) return true;
        [[fallthrough]];
      case Need::kUsual:
        break;
    }
    return passed >= interval_;
  }
  /// A listing is asked for now. Each takes one interval of the time that has been saved up.
  void begin(core::Millis now) {
    credit_ = std::max(credit(now) - interval_, core::Millis(0));
    begun_at_ = now;
  }
  /// Slurm has answered.
  void answered(core::Millis now) { took_ = now - *begun_at_; }
  /// squeue has failed. One that gave up tells nothing of how long a listing takes.
  void failed(core::Millis now) {
    if (now - *begun_at_ < kAtOnce) took_ = core::Millis(0);
  }

 private:
  core::Millis credit(core::Millis now) const {
    return begun_at_ ? std::min(credit_ + (now - *begun_at_), interval_ * kBurst) : interval_ * kBurst;
  }

  const core::Millis interval_, urgent_;
  std::optional<core::Millis> begun_at_;
  core::Millis took_{0};
  core::Millis credit_{0};  // as it was when the last listing began
};

}  // namespace executors::on_slurm
