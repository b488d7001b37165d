#include "ranks/attempt_standing.h"

namespace ranks {

AttemptStanding standing_of(const core::Job& job, core::AttemptNumber number) {
  AttemptStanding standing;
  const auto& attempts = job.attempts;
  const bool newest = number == attempts.size();
  standing.current = newest && !attempts.empty() && attempts.back().state != core::AttemptState::kEnded;
  standing.upcoming = !standing.current && core::is_upcoming(job, number);
  if (standing.upcoming) standing.directive = muster::v1::DIRECTIVE_CONTINUE;
  if (!standing.current) return standing;
  const auto& attempt = attempts.back();
  standing.cause = attempt.cause;
  if (attempt.state != core::AttemptState::kDraining) {
    standing.directive = muster::v1::DIRECTIVE_CONTINUE;
  } else if (core::leaves_with_save(attempt.cause)) {
    standing.directive = muster::v1::DIRECTIVE_SAVE_AND_LEAVE;
  }
  return standing;
}

}  // namespace ranks
