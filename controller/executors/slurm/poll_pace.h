#pragma once

#include <algorithm>
#include <optional>

#include "controller/core/job.h"
#include "slurm/scheduler.h"

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

/// The difference between slurmctld's clock and this machine's. munge allows five minutes, and no save may come too
/// late because of them. Pure; times are passed in.
class SlurmClock {
 public:
  /// Slurm is to be asked for its time. It never told the time, or told it long ago, or this machine's clock was set.
  bool is_due(core::Time wall, core::Millis now) const {
    if (!ask_at_ || now >= *ask_at_) return true;
    const auto set_by = (wall - wall_) - (now - now_);
    return set_by >= kSet || set_by <= -kSet;
  }
  /// Slurm was asked between these two times of this machine. `said`: its answer, if it gave one.
  void asked(std::optional<::slurm::Time> said, core::Time before, core::Time after, core::Millis now) {
    const bool tells = said && after >= before && after - before <= kQuick;
    ask_at_ = now + (tells ? kFresh : kAskAgain);
    wall_ = after;
    now_ = now;
    if (!tells) return;
    // Slurm tells whole seconds. Its clock was somewhere in this second, and this machine's somewhere between the two.
    const core::Time first = *said, last = first + std::chrono::seconds(1);
    const bool may_be_the_same = first <= after && last >= before;
    ahead_ = may_be_the_same ? core::Millis(0) : ((first - after) + (last - before)) / 2;
  }

  /// By slurmctld's clock.
  core::Time theirs(core::Time ours) const { return ours + ahead_; }
  /// By this machine's clock.
  core::Time ours(core::Time theirs) const { return theirs - ahead_; }
  /// How far slurmctld's clock is ahead; less than 0: it is behind.
  core::Millis ahead() const { return ahead_; }

  static constexpr core::Millis kFresh{std::chrono::minutes(5)};
  /// The pause after Slurm did not tell its time.
  static constexpr core::Millis kAskAgain{30'000};
  /// An answer that took longer is too vague.
  static constexpr core::Millis kQuick{10'000};
  /// Smaller differences are no change of a clock.
  static constexpr core::Millis kSet{2000};

 private:
  core::Millis ahead_{0};
  std::optional<core::Millis> ask_at_;  // nullopt: Slurm was never asked
  core::Time wall_{};                   // when Slurm was asked
  core::Millis now_{0};
};

}  // namespace executors::on_slurm
