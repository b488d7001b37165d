#include "ranks/attempt_streams.h"

#include <utility>
#include <vector>

namespace ranks {

bool AttemptStreams::Attempt::stand(const AttemptStanding& standing) {
  std::lock_guard lock(mutex_);
  return std::exchange(standing_, standing) != standing;
}

void AttemptStreams::forget(const core::AttemptKey& key, Stream* stream) {
  std::lock_guard lock(mutex_);
  const auto found = attempts_.find(key);
  if (found == attempts_.end() || found->second->streams_.erase(stream) == 0) return;
  --open_;
  if (found->second->streams_.empty()) attempts_.erase(found);
}

void AttemptStreams::follow(const core::Job& job) {
  std::vector<std::shared_ptr<Stream>> changed;
  {
    std::lock_guard lock(mutex_);
    for (auto place = attempts_.lower_bound({job.id, 0}); place != attempts_.end() && place->first.job == job.id;
         ++place) {
      auto& attempt = *place->second;
      if (!attempt.stand(standing_of(job, place->first.number))) continue;
      for (const auto& [_, stream] : attempt.streams_) {
        if (auto open = stream.lock()) changed.push_back(std::move(open));
      }
    }
  }
  for (const auto& stream : changed) stream->news();
}

}  // namespace ranks
