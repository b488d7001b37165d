#pragma once

#include <string>
#include <utility>
#include <vector>

#include "controller/core/apply.h"

namespace test {

inline core::Time at_ms(std::int64_t ms) {
  return core::Time{core::Millis{ms}};
}

inline core::JobSubmitted submitted(std::uint32_t ranks = 2, core::RequeuePolicy policy = {}) {
  return {"chess", "anna", false, ranks, core::Millis{0}, policy};
}
inline core::RankExited exited(core::AttemptNumber attempt, core::RankNumber rank, int code, std::string words = "") {
  return {attempt, rank, {code, 0}, false, std::move(words)};
}
inline core::RankExited killed(core::AttemptNumber attempt, core::RankNumber rank, int signal) {
  return {attempt, rank, {0, signal}, false, ""};
}

/// One job and its events, one after the other.
struct Story {
  core::Job job;
  core::Applied last;
  std::vector<core::Event> events;
  core::Time now = at_ms(0);

  explicit Story(core::JobId id = 7) { job.id = id; }

  Story& tell(core::EventBody body) {
    events.push_back({now, std::move(body)});
    last = core::apply(job, events.back());
    job = last.job;
    return *this;
  }
  template <typename... Bodies>
  Story& tell_all(Bodies... bodies) {
    (tell(std::move(bodies)), ...);
    return *this;
  }
  Story& wait(core::Millis time) {
    now += time;
    return *this;
  }
  /// Launches attempt `number` and lets every rank join.
  Story& run(core::AttemptNumber number) {
    tell(core::AttemptLaunched{number, "handle-" + std::to_string(number), "node1", {}});
    for (core::RankNumber rank = 0; rank < job.world_size; ++rank) {
      tell(core::RankJoined{number, rank, "node1", 100 + rank});
    }
    return *this;
  }
  const core::Attempt& attempt(core::AttemptNumber number) const { return job.attempts.at(number - 1); }

  /// The only action asked for by the last event, or null.
  template <typename A>
  const A* action() const {
    return last.actions.size() == 1 ? std::get_if<A>(&last.actions.front()) : nullptr;
  }
};

}  // namespace test
