#include "admission/sweep_gate.h"

#include <algorithm>

#include "executors/scheduler_handle.h"

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
bool is_limited_there(const core::Attempt& attempt) {
  return attempt.number == 1 && attempt.queued_at && is_array_element(attempt.handle);
}

bool waits_in_queue(const core::Attempt* attempt) {
  return attempt != nullptr && attempt->number == 1 && attempt->state == core::AttemptState::kQueued;
}

std::string most_text(const core::Job& job) {
  return "waits for its turn: at most " + std::to_string(job.sweep.parallel) + " of sweep " + job.sweep.sweep;
}

}  // namespace

// Of arrays, which limit themselves, any number while nothing else has a place.
bool SweepGate::Sweep::has_room(std::size_t most, bool in_array, std::size_t ahead) const {
  return (in_array && places.empty()) || places.size() + std::min(most, first.size() + ahead) < most;
}

void SweepGate::Sweep::count(const core::Job& job) {
  const auto* attempt = living(job);
  const bool in_array = attempt != nullptr && is_limited_there(*attempt);
  (in_array ? first : places).insert(job.id);
  (in_array ? places : first).erase(job.id);
}

void SweepGate::Sweep::leave_out(core::JobId job) {
  places.erase(job);
  first.erase(job);
}

void SweepGate::follow(const core::Job& job) {
  if (!is_limited(job)) return;
  std::lock_guard lock(mutex_);
  auto& sweep = sweeps_[job.sweep.sweep];
  const auto* attempt = living(job);
  const bool waits = waits_in_queue(attempt);
  const bool was_held = sweep.held.erase(job.id) + sweep.released.erase(job.id) > 0;
  sweep.to_hold.erase(job.id);
  if (waits && was_held && !job.held) {
    sweep.released.insert(job.id);
    return;
  }
  // One that is on its way and cancelled may arrive: it keeps its place until leave().
  if (attempt != nullptr) entering_.erase(job.id);
  if (attempt != nullptr || core::is_ended(job.state)) kept_out_.erase(job.id);
  if (waits && was_held) {
    sweep.held.insert(job.id);
  } else if (attempt != nullptr) {
    sweep.count(job);
    if (waits && job.held) sweep.to_hold.insert(job.id);
  } else if (!entering_.contains(job.id)) {
    sweep.leave_out(job.id);
  }
  forget_if_empty(job.sweep.sweep);
}

bool SweepGate::enter(const core::Job& job, bool in_array, std::size_t to_queue) {
  if (!is_limited(job)) return true;
  std::lock_guard lock(mutex_);
  auto& sweep = sweeps_[job.sweep.sweep];
  if (sweep.places.contains(job.id) || sweep.first.contains(job.id)) return true;
  const bool comes_back = !job.attempts.empty();
  const auto ahead = comes_back ? to_queue + sweep.released.size() : 0;
  if (!sweep.has_room(job.sweep.parallel, in_array, ahead)) {
    const bool behind_first = comes_back && sweep.first.size() + ahead > 0;
    kept_out_[job.id] =
        most_text(job) + " have an attempt at once" + (behind_first ? ", and first attempts go first" : "");
    forget_if_empty(job.sweep.sweep);
    return false;
  }
  (in_array && sweep.places.empty() ? sweep.first : sweep.places).insert(job.id);
  entering_[job.id] = job.sweep.sweep;
  kept_out_.erase(job.id);
  return true;
}

bool SweepGate::goes_alone(core::JobId job) const {
  std::lock_guard lock(mutex_);
  const auto entering = entering_.find(job);
  if (entering == entering_.end()) return false;
  const auto found = sweeps_.find(entering->second);
  return found != sweeps_.end() && found->second.places.contains(job);
}

void SweepGate::leave(core::JobId job) {
  std::lock_guard lock(mutex_);
  const auto entering = entering_.extract(job);
  if (entering.empty()) return;
  const auto found = sweeps_.find(entering.mapped());
  if (found == sweeps_.end()) return;
  found->second.leave_out(job);
  forget_if_empty(entering.mapped());
}

void SweepGate::keep(const core::Job& job, bool in_array) {
  if (!is_limited(job)) return;
  std::lock_guard lock(mutex_);
  auto& sweep = sweeps_[job.sweep.sweep];
  (in_array ? sweep.first : sweep.places).insert(job.id);
  entering_[job.id] = job.sweep.sweep;
}

void SweepGate::hold(const core::Job& job) {
  std::lock_guard lock(mutex_);
  const auto found = sweeps_.find(job.sweep.sweep);
  if (found == sweeps_.end() || found->second.to_hold.erase(job.id) == 0) return;
  found->second.leave_out(job.id);
  found->second.held.insert(job.id);
}

void SweepGate::release(const core::Job& job) {
  if (!is_limited(job) || !waits_in_queue(living(job)) || job.held) return;
  std::lock_guard lock(mutex_);
  auto& sweep = sweeps_[job.sweep.sweep];
  sweep.leave_out(job.id);
  sweep.released.insert(job.id);
}

// One that is counted was let go before, or its queue has never held it.
bool SweepGate::let_go(const core::Job& job) {
  if (!is_limited(job) || !waits_in_queue(living(job))) return true;
  std::lock_guard lock(mutex_);
  const auto found = sweeps_.find(job.sweep.sweep);
  if (found == sweeps_.end() || !found->second.released.contains(job.id)) return true;
  auto& sweep = found->second;
  if (!sweep.has_room(job.sweep.parallel, is_limited_there(*living(job)), 0)) {
    kept_out_[job.id] = "released, and " + most_text(job) + " run at once";
    return false;
  }
  sweep.released.erase(job.id);
  sweep.count(job);
  kept_out_.erase(job.id);
  return true;
}

std::string SweepGate::explain(core::JobId job) const {
  std::lock_guard lock(mutex_);
  const auto found = kept_out_.find(job);
  return found == kept_out_.end() ? std::string() : found->second;
}

void SweepGate::forget_if_empty(const std::string& name) {
  const auto found = sweeps_.find(name);
  if (found != sweeps_.end() && found->second.is_empty()) sweeps_.erase(found);
}

}  // namespace runtime
