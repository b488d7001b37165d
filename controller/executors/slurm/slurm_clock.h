#pragma once

#include "controller/core/types.h"
#include "slurm/scheduler.h"

namespace executors::on_slurm {

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
