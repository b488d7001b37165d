#include "executors/slurm/slurm_side.h"

#include <algorithm>

namespace executors::on_slurm {
namespace {

// The job's own limit is the controller's to watch. It is never later than Slurm's.
std::optional<Running::Limit> limit_of(const Observation& seen, core::Millis stop_grace) {
  const auto& job = *seen.job;
  if (job.state.state != ::slurm::JobState::kRunning || !job.time_limit || !job.ends) return std::nullopt;
  const core::Millis limit = *job.time_limit;
  const auto left = std::chrono::duration_cast<core::Millis>(*job.ends - seen.slurm_now);
  return Running::Limit{seen.now + left - std::min(stop_grace, limit / 2), limit};
}

std::optional<core::Millis> woken_at(const Listed& before, core::Millis now) {
  if (std::holds_alternative<Suspended>(before)) return now;
  const auto* running = std::get_if<Running>(&before);
  return running != nullptr ? running->woken_at : std::nullopt;
}

}  // namespace

std::optional<Listed> newest_listed(const SlurmSide& side) {
  return std::visit(
      [](const auto& state) -> std::optional<Listed> {
        using State = std::decay_t<decltype(state)>;
        if constexpr (std::is_same_v<State, Missing>) return state.before;
        if constexpr (std::is_constructible_v<Listed, State>) return Listed(state);
        return std::nullopt;
      },
      side);
}

Listed next(const Listed& before, const Observation& seen, core::Millis stop_grace) {
  const auto state = seen.job->state.state;
  const auto* ending = std::get_if<Ending>(&before);
  switch (::slurm::classify(state)) {
    case ::slurm::JobPhase::kQueued:
      return Queued{};
    case ::slurm::JobPhase::kEnding:
      return Ending{ending != nullptr ? ending->since : seen.now};
    case ::slurm::JobPhase::kActive:
      if (state == ::slurm::JobState::kSuspended || state == ::slurm::JobState::kStopped) return Suspended{};
      if (state == ::slurm::JobState::kConfiguring && std::holds_alternative<Queued>(before)) return Queued{};
      return Running{limit_of(seen, stop_grace), woken_at(before, seen.now)};
    default:  // a state of a later Slurm says nothing
      if (std::holds_alternative<Queued>(before)) return Queued{};
      return Running{std::nullopt, woken_at(before, seen.now)};
  }
}

Missing next_missing(const SlurmSide& before, core::Millis now) {
  auto missing = Missing{newest_listed(before).value_or(Listed()), now, 0, std::nullopt};
  if (const auto* again = std::get_if<Missing>(&before)) missing = *again;
  ++missing.listings;
  return missing;
}

}  // namespace executors::on_slurm
