#include "executors/slurm/slurm_clock.h"

namespace executors::on_slurm {

bool SlurmClock::is_due(core::Time wall, core::Millis now) const {
  if (!ask_at_ || now >= *ask_at_) return true;
  const auto set_by = (wall - wall_) - (now - now_);
  return set_by >= kSet || set_by <= -kSet;
}

void SlurmClock::asked(std::optional<::slurm::Time> said, core::Time before, core::Time after, core::Millis now) {
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

}  // namespace executors::on_slurm
