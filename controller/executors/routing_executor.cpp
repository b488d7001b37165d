#include "executors/routing_executor.h"

#include <algorithm>

namespace executors {

void RoutingExecutor::set_history(std::function<bool(const core::AttemptKey&)> is_over) {
  local_.set_history(is_over);
  slurm_.set_history(is_over);
  is_over_ = std::move(is_over);
}

std::vector<LaunchAnswer> RoutingExecutor::launch_all(const std::vector<LaunchRequest>& requests) {
  std::vector<LaunchAnswer> answers(requests.size());
  for (Executor* executor : {&local_, &slurm_}) {
    std::vector<LaunchRequest> theirs;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (&chosen(requests[i].executor) != executor) continue;
      theirs.push_back(requests[i]);
      places.push_back(i);
    }
    if (theirs.empty()) continue;
    for (const auto& request : theirs) remember(request.key, *executor);
    forget_ended(theirs.size());
    auto some = executor->launch_all(theirs);
    for (std::size_t i = 0; i < places.size(); ++i) answers[places[i]] = std::move(some[i]);
  }
  return answers;
}

std::optional<LaunchAnswer> RoutingExecutor::withdraw(const LaunchRequest& request) {
  Executor& owner = chosen(request.executor);
  auto answer = owner.withdraw(request);
  if (answer) remember(request.key, owner);
  return answer;
}

// Twice as many as have come are looked at, in turns: a launch costs the same however many are remembered, and those
// that are over go faster than others come.
void RoutingExecutor::forget_ended(std::size_t launched) {
  std::vector<core::AttemptKey> over;
  {
    std::lock_guard lock(mutex_);
    if (!is_over_ || owners_.size() <= remembered_) return;
    for (auto left = std::min(2 * launched, owners_.size()); left > 0; --left) {
      auto next = owners_.upper_bound(looked_at_);
      if (next == owners_.end()) next = owners_.begin();
      over.push_back(looked_at_ = next->first);
    }
  }
  std::erase_if(over, [&](const core::AttemptKey& key) { return !is_over_(key); });
  std::lock_guard lock(mutex_);
  for (const auto& key : over) owners_.erase(key);
}

void RoutingExecutor::adopt(const core::AttemptKey& key, const core::Attempt& attempt) {
  Executor& owner = attempt.scheduler_job ? slurm_ : local_;
  remember(key, owner);
  owner.adopt(key, attempt);
}

void RoutingExecutor::remember(const core::AttemptKey& key, Executor& owner) {
  std::lock_guard lock(mutex_);
  owners_[key] = &owner;
}

Executor* RoutingExecutor::of(const core::AttemptKey& key) const {
  std::lock_guard lock(mutex_);
  const auto found = owners_.find(key);
  return found == owners_.end() ? nullptr : found->second;
}

// One that nobody knows may be with either; stopping what is not there does no harm.
void RoutingExecutor::stop(const core::AttemptKey& key, const StopRequest& how) {
  if (Executor* owner = of(key)) return owner->stop(key, how);
  local_.stop(key, how);
  slurm_.stop(key, how);
}

std::vector<std::string> RoutingExecutor::scripts(const std::vector<LaunchRequest>& requests) {
  std::vector<LaunchRequest> theirs;
  for (const auto& request : requests) {
    if (&chosen(request.executor) == &slurm_) theirs.push_back(request);
  }
  return theirs.empty() ? std::vector<std::string>{} : slurm_.scripts(theirs);
}

}  // namespace executors
