#include "controller/jobs/event_log.h"

#include <algorithm>
#include <utility>

namespace jobs {
namespace {

bool waits(const core::Job& job) {
  if (core::is_ended(job.state)) return false;
  return std::ranges::any_of(job.after, [](const core::Dependency& dependency) { return !dependency.met; });
}

}  // namespace

void Dependencies::follow(const core::Job& job) {
  std::lock_guard lock(mutex_);
  if (waits(job)) {
    news_ = waiting_.insert(job.id).second || news_;
  } else {
    waiting_.erase(job.id);
  }
  if (core::is_ended(job.state) && !waiting_.empty()) news_ = true;
}

void Dependencies::tell() {
  std::set<core::JobId> waiting;
  {
    std::lock_guard lock(mutex_);
    if (!std::exchange(news_, false)) return;
    waiting = waiting_;
  }
  try {
    for (const auto id : waiting) {
      const auto job = event_log_.job(id);
      if (job == nullptr || !waits(*job)) continue;
      for (const auto& dependency : job->after) {
        const auto other = dependency.met ? nullptr : event_log_.job(dependency.job);
        if (other != nullptr && core::is_ended(other->state)) {
          event_log_.keep(id, core::DependencyEnded{dependency.job, other->state});
        }
      }
    }
  } catch (...) {
    std::lock_guard lock(mutex_);
    news_ = true;
    throw;
  }
}

}  // namespace jobs
