#include "controller/common/changes.h"

#include <algorithm>

namespace common {

void Changes::bump(core::JobId job) {
  std::lock_guard lock(mutex_);
  ++count_;
  if (jobs_.insert_or_assign(job, count_).second) order_.push_back(job);
  if (order_.size() > kJobs) {
    const auto oldest = jobs_.find(order_.front());
    forgotten_ = std::max(forgotten_, oldest->second);
    jobs_.erase(oldest);
    order_.pop_front();
  }
  changed_.notify_all();
}

std::uint64_t Changes::wait(core::JobId job, std::uint64_t seen, core::Millis timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [&] { return closed_ || newest_locked(job) > seen; });
  return count_;
}

void Changes::close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

std::uint64_t Changes::newest_locked(core::JobId job) const {
  if (job == 0) return count_;
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? forgotten_ : found->second;
}

}  // namespace common
