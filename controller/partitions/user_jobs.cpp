#include "partitions/user_jobs.h"

#include <algorithm>
#include <stdexcept>

namespace runtime {
namespace {

bool has_attempt(const core::Job& job) {
  const auto* attempt = job.current();
  return attempt != nullptr && attempt->state != core::AttemptState::kEnded;
}

bool waits_to_run(const core::Job& job) {
  return !has_attempt(job) || job.current()->state == core::AttemptState::kQueued;
}

}  // namespace

// `by` is 1, or its wrapped negative.
void UserJobs::count(const Entry& entry, std::uint32_t by) {
  const Key key{entry.partition, entry.user};
  auto& counts = counts_[key];
  if (entry.placed()) counts.handed_over += by;
  if (entry.waits) counts.waiting += by;
  if (counts == Counts{}) counts_.erase(key);
}

void UserJobs::follow(const core::Job& job) {
  std::lock_guard lock(mutex_);
  const auto known = jobs_.find(job.id);
  if (core::is_ended(job.state)) {
    unsettled_.erase(job.id);
    if (known == jobs_.end()) return;
    count(known->second, ~0U);
    known->second.taken = known->second.waits = false;
    known->second.ended = true;
    // One that is on its way and cancelled may arrive: it keeps its place until leave().
    if (known->second.entering) {
      count(known->second, 1);
    } else {
      jobs_.erase(known);
    }
    return;
  }
  const bool taken = has_attempt(job);
  if (known != jobs_.end()) {
    auto& entry = known->second;
    count(entry, ~0U);
    entry.ended = false;
    entry.taken = taken;
    entry.waits = waits_to_run(job);
    entry.entering = entry.entering && !taken;
    count(entry, 1);
  } else {
    unsettled_[job.id] = {job.user, "", taken, waits_to_run(job), false};
  }
}

void UserJobs::settle() {
  for (auto next = unsettled_.begin(); next != unsettled_.end();) {
    auto entry = next->second;
    try {
      entry.partition = partition_of_(next->first);
    } catch (const std::exception&) {
      ++next;  // it is asked again
      continue;
    }
    count(entry, 1);
    jobs_.emplace(next->first, std::move(entry));
    next = unsettled_.erase(next);
  }
}

UserJobs::Counts UserJobs::of(const std::string& partition, const std::string& user) {
  std::lock_guard lock(mutex_);
  settle();
  const auto found = counts_.find({partition, user});
  return found == counts_.end() ? Counts{} : found->second;
}

std::uint32_t UserJobs::open_in(const std::string& partition) {
  std::lock_guard lock(mutex_);
  settle();
  return static_cast<std::uint32_t>(std::ranges::count_if(
      jobs_, [&](const auto& job) { return job.second.partition == partition && !job.second.ended; }));
}

void UserJobs::settle(core::JobId job) {
  settle();
  if (unsettled_.contains(job)) throw std::runtime_error("which partition it goes to can't be read");
}

std::string UserJobs::partition_of(core::JobId job) {
  std::lock_guard lock(mutex_);
  settle(job);
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? std::string() : found->second.partition;
}

bool UserJobs::enter(const core::Job& job, std::uint32_t most) {
  std::lock_guard lock(mutex_);
  settle(job.id);
  const auto found = jobs_.find(job.id);
  if (found == jobs_.end() || found->second.placed()) return true;
  if (counts_[{found->second.partition, found->second.user}].handed_over >= most) return false;
  count(found->second, ~0U);
  found->second.entering = true;
  count(found->second, 1);
  return true;
}

void UserJobs::leave(core::JobId job) {
  std::lock_guard lock(mutex_);
  const auto found = jobs_.find(job);
  if (found == jobs_.end() || !found->second.entering) return;
  count(found->second, ~0U);
  found->second.entering = false;
  if (found->second.ended) {
    jobs_.erase(found);
  } else {
    count(found->second, 1);
  }
}

bool UserJobs::has_place(core::JobId job) {
  std::lock_guard lock(mutex_);
  settle();
  const auto found = jobs_.find(job);
  return found == jobs_.end() || found->second.placed();
}

}  // namespace runtime
