#include "controller/jobs/event_log.h"

#include <algorithm>
#include <utility>

namespace jobs {

JobPtr JobTable::in_memory(core::JobId id) const {
  std::lock_guard lock(mutex_);
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : found->second;
}

JobPtr JobTable::get(core::JobId id) const {
  if (auto known = in_memory(id)) return known;
  auto loaded = store_.load(id);
  return loaded ? std::make_shared<const core::Job>(std::move(*loaded)) : nullptr;
}

std::vector<JobPtr> JobTable::open() const {
  std::vector<JobPtr> open;
  std::lock_guard lock(mutex_);
  for (const auto& [id, job] : jobs_) {
    if (!core::is_ended(job->state)) open.push_back(job);
  }
  std::ranges::sort(open, {}, [](const JobPtr& job) { return job->id; });
  return open;
}

void JobTable::load_open() {
  for (auto& job : store_.load_open()) {
    std::lock_guard lock(mutex_);
    // try_emplace: a state that put() took since the read is newer.
    jobs_.try_emplace(job.id, std::make_shared<const core::Job>(job));
  }
}

void JobTable::put(const JobPtr& job) {
  std::lock_guard lock(mutex_);
  auto& known = jobs_[job->id];
  const bool was_ended = known != nullptr && core::is_ended(known->state);
  known = job;
  if (core::is_ended(job->state) && !was_ended) ended_.push_back(job->id);
  while (ended_.size() > kEndedInMemory) {
    const auto oldest = jobs_.find(ended_.front());
    if (oldest != jobs_.end() && core::is_ended(oldest->second->state)) jobs_.erase(oldest);
    ended_.pop_front();
  }
}

void JobTable::reload(core::JobId id) {
  auto loaded = store_.load(id);
  if (!loaded) return;
  std::lock_guard lock(mutex_);
  jobs_[id] = std::make_shared<const core::Job>(std::move(*loaded));
}

}  // namespace jobs
