#include "controller/service/reconciler.h"

#include <spdlog/spdlog.h>

#include <stdexcept>

namespace service {
namespace {

constexpr std::uint32_t kEventsAtOnce = 1000;
/// Ranks wait between attempts to reach a controller that was away; their silence counts from here on.
constexpr core::Millis kReconnectPatience{10000};

// Checkpoints that were told already are not told again.
void recall_checkpoints(const Parts& parts, const core::AttemptKey& key) {
  std::int64_t after = 0;
  while (true) {
    const auto events = parts.store.events(key.job, after, kEventsAtOnce);
    for (const auto& event : events) {
      after = event.id;
      const auto* saved = std::get_if<core::CheckpointSaved>(&event.event.body);
      if (saved != nullptr && saved->attempt == key.number) parts.live_ranks.set_checkpoint_told(key, saved->step);
    }
    if (events.size() < kEventsAtOnce) return;
  }
}

void take_over(const Parts& parts, const core::Job& job, const core::Attempt& attempt) {
  const core::AttemptKey key{job.id, attempt.number};
  const auto spec = parts.specs.get(job.id);
  if (spec == nullptr) throw std::runtime_error("it has no stored spec");
  const auto now = parts.clock.monotonic();
  parts.live_ranks.track(key, ranks::liveness_rules(*spec), job.world_size, now, now + kReconnectPatience);
  parts.live_ranks.follow(job, now);
  if (attempt.started_at) parts.live_ranks.set_started(key, now - (parts.clock.wall() - *attempt.started_at));
  recall_checkpoints(parts, key);
  spdlog::info("job {} attempt {}: taken over", key.job, key.number);
  parts.executor.adopt(key, attempt);
  // The one who asked it to leave may not have lived to kill what stayed.
  if (attempt.state == core::AttemptState::kDraining) {
    const bool save = core::leaves_with_save(attempt.cause);
    parts.executor.stop(key, {jobs::stop_grace(*spec, save), save, executors::stop_word(attempt.cause)});
  }
}

}  // namespace

bool take_over_attempts(const Parts& parts) {
  bool any_runs = false;
  for (const auto& job : parts.event_log.open_jobs()) {
    const auto* attempt = job->current();
    if (attempt == nullptr || attempt->state == core::AttemptState::kEnded) continue;
    try {
      take_over(parts, *job, *attempt);
      any_runs = any_runs || attempt->started_at.has_value();
    } catch (const std::exception& e) {
      spdlog::error("job {} attempt {} cannot be taken over: {}", job->id, attempt->number, e.what());
    }
  }
  return any_runs;
}

}  // namespace service
