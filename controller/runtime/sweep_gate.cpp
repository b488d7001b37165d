#include "runtime/sweep_gate.h"

#include <algorithm>

namespace runtime {
namespace {

bool is_limited(const core::Job& job) {
  return !job.sweep.sweep.empty() && job.sweep.parallel > 0;
}

const core::Attempt* living(const core::Job& job) {
  const auto* attempt = job.current();
  return attempt == nullptr || attempt->state == core::AttemptState::kEnded ? nullptr : attempt;
}

/// It came from a queue that limits it itself.
bool is_first_of_queue(const core::Attempt& attempt) {
  return attempt.number == 1 && attempt.queued_at.has_value();
}

}  // namespace

void SweepGate::follow(const core::Job& job) {
  if (!is_limited(job)) return;
  std::lock_guard lock(mutex_);
  auto& sweep = sweeps_[job.sweep.sweep];
  const auto* attempt = living(job);
  const bool first = attempt != nullptr && is_first_of_queue(*attempt);
  if (first && !(job.held && attempt->state == core::AttemptState::kQueued)) {
    sweep.first.insert(job.id);
  } else {
    sweep.first.erase(job.id);
  }
  if (attempt != nullptr || core::is_ended(job.state)) {
    entering_.erase(job.id);
    kept_out_.erase(job.id);
  }
  if (attempt != nullptr && !first) {
    sweep.places.insert(job.id);
  } else if (!entering_.contains(job.id)) {
    sweep.places.erase(job.id);
  }
  forget_if_empty(job.sweep.sweep);
}

bool SweepGate::enter(const core::Job& job, std::size_t to_queue) {
  if (!is_limited(job)) return true;
  std::lock_guard lock(mutex_);
  auto& sweep = sweeps_[job.sweep.sweep];
  if (sweep.places.contains(job.id)) return true;
  const std::size_t most = job.sweep.parallel;
  const auto first = std::min(most, sweep.first.size() + to_queue);
  if (sweep.places.size() + first >= most) {
    kept_out_[job.id] = "waits for its turn: at most " + std::to_string(most) + " of sweep " + job.sweep.sweep +
                        " have an attempt at once" + (first > 0 ? ", and first attempts go first" : "");
    forget_if_empty(job.sweep.sweep);
    return false;
  }
  sweep.places.insert(job.id);
  entering_[job.id] = job.sweep.sweep;
  kept_out_.erase(job.id);
  return true;
}

void SweepGate::leave(core::JobId job) {
  std::lock_guard lock(mutex_);
  const auto entering = entering_.extract(job);
  if (entering.empty()) return;
  const auto found = sweeps_.find(entering.mapped());
  if (found == sweeps_.end()) return;
  found->second.places.erase(job);
  forget_if_empty(entering.mapped());
}

std::string SweepGate::explain(core::JobId job) const {
  std::lock_guard lock(mutex_);
  const auto found = kept_out_.find(job);
  return found == kept_out_.end() ? std::string() : found->second;
}

void SweepGate::forget_if_empty(const std::string& name) {
  const auto found = sweeps_.find(name);
  if (found != sweeps_.end() && found->second.places.empty() && found->second.first.empty()) sweeps_.erase(found);
}

}  // namespace runtime
