#pragma once

#include "core/types.h"
#include "slurm/scheduler.h"

namespace runtime::on_slurm {

/// How far slurmctld's clock is from ours: munge allows five minutes, and no save may come too late for them. Pure;
/// times are passed in.
class SlurmClock {
 public:
  /// It is time to ask Slurm what time it has: it never said, or long ago, or our own clock has been set since.
  bool is_due(core::Time wall, core::Millis now) const;
  /// It was asked between these two of ours; `said`: what it answered, if anything.
  void asked(std::optional<::slurm::Time> said, core::Time before, core::Time after, core::Millis now);

  /// By slurmctld's clock.
  core::Time theirs(core::Time ours) const { return ours + ahead_; }
  /// By this machine's clock.
  core::Time ours(core::Time theirs) const { return theirs - ahead_; }
  /// Of slurmctld's clock; less than 0: it is behind.
  core::Millis ahead() const { return ahead_; }

  static constexpr core::Millis kFresh{std::chrono::minutes(5)};
  /// Where it did not say.
  static constexpr core::Millis kAskAgain{30'000};
  /// An answer that took longer tells too little.
  static constexpr core::Millis kQuick{10'000};
  /// Nobody sets a clock by less.
  static constexpr core::Millis kSet{2000};

 private:
  core::Millis ahead_{0};
  std::optional<core::Millis> ask_at_;  // nothing: it was never asked
  core::Time wall_{};                   // when it was asked
  core::Millis now_{0};
};

}  // namespace runtime::on_slurm
