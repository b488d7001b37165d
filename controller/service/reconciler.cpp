#include "service/reconciler.h"

#include <spdlog/spdlog.h>

#include "jobs/spec_values.h"
#include "ranks/liveness_rules.h"

namespace service {
namespace {
constexpr std::uint32_t kEventsAtOnce = 1000;
}

void Reconciler::take_over() {
  for (const auto& job : parts_.event_log.open_jobs()) {
    const auto* attempt = job->current();
    if (attempt == nullptr || attempt->state == core::AttemptState::kEnded) continue;
    try {
      take_over(*job, *attempt);
    } catch (const std::exception& e) {
      spdlog::error("job {} attempt {} cannot be taken over: {}", job->id, attempt->number, e.what());
    }
  }
}

void Reconciler::take_over(const core::Job& job, const core::Attempt& attempt) {
  const core::AttemptKey key{job.id, attempt.number};
  const auto spec = parts_.specs.get(job.id);
  if (spec == nullptr) throw std::runtime_error("it has no stored spec");
  const auto now = parts_.clock.monotonic();
  parts_.live_ranks.track(key, ranks::liveness_rules(*spec), job.world_size, now, now + kReconnectPatience);
  parts_.live_ranks.follow(job, now);
  if (attempt.started_at) parts_.live_ranks.set_started(key, now - (parts_.clock.wall() - *attempt.started_at));
  recall_history(key);
  spdlog::info("job {} attempt {}: taken over", key.job, key.number);
  parts_.executor.adopt(key, attempt);
  // The one who asked it to leave may not have lived to kill what stayed.
  if (attempt.state == core::AttemptState::kDraining) {
    const bool save = core::leaves_with_save(attempt.cause);
    parts_.executor.stop(key, {jobs::stop_grace(*spec, save), save, executors::stop_word(attempt.cause)});
  }
}

// What was told already is not told again.
void Reconciler::recall_history(const core::AttemptKey& key) {
  std::int64_t after = 0;
  while (true) {
    const auto events = parts_.store.events(key.job, after, kEventsAtOnce);
    for (const auto& event : events) {
      after = event.id;
      if (const auto* saved = std::get_if<core::CheckpointSaved>(&event.event.body)) {
        if (saved->attempt == key.number) parts_.live_ranks.set_checkpoint_told(key, saved->step);
      } else if (const auto* resumed = std::get_if<core::AttemptResumed>(&event.event.body)) {
        if (resumed->attempt == key.number) parts_.live_ranks.set_resume_told(key);
      }
    }
    if (events.size() < kEventsAtOnce) return;
  }
}

}  // namespace service
