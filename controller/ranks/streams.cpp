#include "controller/ranks/streams.h"

#include <vector>

namespace ranks {

namespace v1 = muster::v1;

AttemptStanding standing_of(const core::Job& job, core::AttemptNumber number) {
  AttemptStanding standing;
  const auto& attempts = job.attempts;
  const bool newest = number == attempts.size();
  standing.current = newest && !attempts.empty() && attempts.back().state != core::AttemptState::kEnded;
  standing.upcoming = !standing.current && core::is_upcoming(job, number);
  if (standing.upcoming) standing.directive = v1::DIRECTIVE_CONTINUE;
  if (!standing.current) return standing;
  const auto& attempt = attempts.back();
  standing.cause = attempt.cause;
  if (attempt.state != core::AttemptState::kDraining) {
    standing.directive = v1::DIRECTIVE_CONTINUE;
  } else if (core::leaves_with_save(attempt.cause)) {
    standing.directive = v1::DIRECTIVE_SAVE_AND_LEAVE;
  }
  return standing;
}

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

bool AttemptStreams::is_open(const core::AttemptKey& key) {
  std::lock_guard lock(mutex_);
  return attempts_.contains(key);
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

void AttemptStreams::news_for(const core::AttemptKey& key) {
  std::vector<std::shared_ptr<Stream>> all;
  {
    std::lock_guard lock(mutex_);
    const auto place = attempts_.find(key);
    if (place == attempts_.end()) return;
    for (const auto& [_, stream] : place->second->streams_) {
      if (auto open = stream.lock()) all.push_back(std::move(open));
    }
  }
  for (const auto& stream : all) stream->news();
}

}  // namespace ranks
