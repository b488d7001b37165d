#include "jobs/spec_cache.h"

#include <stdexcept>

#include "json/proto_json.h"
#include "schema/whole_number.h"

namespace jobs {

SpecPtr SpecCache::get(core::JobId id) {
  {
    std::lock_guard lock(mutex_);
    if (const auto found = specs_.find(id); found != specs_.end()) return found->second;
  }
  const auto text = store_.spec_json(id);
  if (!text) return nullptr;
  auto spec = std::make_shared<muster::v1::JobSpec>();
  try {
    proto::from_json(nlohmann::ordered_json::parse(*text), *spec);
  } catch (const std::exception& e) {
    throw std::runtime_error("the stored spec of job " + std::to_string(id) + " cannot be read: " + e.what());
  }
  std::lock_guard lock(mutex_);
  if (specs_.emplace(id, spec).second && !open_.contains(id)) order_.push_back(id);
  drop_some();
  return spec;
}

void SpecCache::follow(const core::Job& job) {
  std::lock_guard lock(mutex_);
  const bool was_open = open_.contains(job.id);
  const bool is_open = !core::is_ended(job.state);
  const bool is_there = specs_.contains(job.id);
  if (is_open && !was_open) {
    open_.insert(job.id);
    if (is_there) std::erase(order_, job.id);
  } else if (!is_open && was_open) {
    open_.erase(job.id);
    if (is_there) order_.push_back(job.id);
  }
  if (job.removed_at && specs_.erase(job.id) > 0) std::erase(order_, job.id);
  drop_some();
}

void SpecCache::drop_some() {
  while (order_.size() > kJobs) {
    specs_.erase(order_.front());
    order_.pop_front();
  }
}

}  // namespace jobs
