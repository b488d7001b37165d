#include "runtime/sweep_gate.h"

namespace runtime {
namespace {

bool is_limited(const core::Job& job) {
  return !job.sweep.sweep.empty() && job.sweep.parallel > 0;
}

bool takes_place(const core::Job& job) {
  const auto* attempt = job.current();
  if (attempt == nullptr || attempt->state == core::AttemptState::kEnded) return false;
  return attempt->state != core::AttemptState::kQueued || attempt->number > 1;
}

}  // namespace

void SweepGate::follow(const core::Job& job) {
  if (!is_limited(job)) return;
  std::lock_guard lock(mutex_);
  if (takes_place(job)) {
    places_[job.sweep.sweep].insert(job.id);
    entering_.erase(job.id);
  } else if (core::is_ended(job.state) || !entering_.contains(job.id)) {
    entering_.erase(job.id);
    give_up(job.sweep.sweep, job.id);
  }
}

bool SweepGate::enter(const core::Job& job) {
  if (!is_limited(job)) return true;
  std::lock_guard lock(mutex_);
  auto& taken = places_[job.sweep.sweep];
  if (taken.contains(job.id)) return true;
  if (taken.size() >= job.sweep.parallel) return false;
  taken.insert(job.id);
  entering_[job.id] = job.sweep.sweep;
  return true;
}

void SweepGate::leave(core::JobId job) {
  std::lock_guard lock(mutex_);
  const auto entering = entering_.extract(job);
  if (!entering.empty()) give_up(entering.mapped(), job);
}

void SweepGate::give_up(const std::string& sweep, core::JobId job) {
  const auto found = places_.find(sweep);
  if (found == places_.end()) return;
  found->second.erase(job);
  if (found->second.empty()) places_.erase(found);
}

}  // namespace runtime
