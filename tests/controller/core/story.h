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
  static inline std::string* sentences = nullptr;  // the sentences of all stories are added to it; null: nowhere

  explicit Story(core::JobId id = 7) { job.id = id; }

  Story& tell(core::EventBody body) {
    events.push_back({now, std::move(body)});
    auto before = std::exchange(job, {});
    last = core::apply(before, events.back());
    job = last.job;
    if (sentences != nullptr) *sentences += sentences_since(before);
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

  /// The sentences that the last event made, a line each.
  std::string sentences_since(const core::Job& before) const {
    std::string text = std::string(type_name(events.back().body)) + ": " + last.text + "\n";
    const auto add = [&](const std::string& what, const std::string& was, const std::string& is) {
      if (is != was) text += "  " + what + ": " + is + "\n";
    };
    add("job", before.reason, job.reason);
    add("limit", before.time_limit_refusal, job.time_limit_refusal);
    for (std::size_t i = 0; i < job.attempts.size(); ++i) {
      const auto older = i < before.attempts.size() ? before.attempts[i] : core::Attempt{};
      add("attempt " + std::to_string(i + 1) + " started", older.reason_started, job.attempts[i].reason_started);
      add("attempt " + std::to_string(i + 1), older.reason, job.attempts[i].reason);
    }
    return text;
  }

  /// The only action asked for by the last event, or null.
  template <typename A>
  const A* action() const {
    return last.actions.size() == 1 ? std::get_if<A>(&last.actions.front()) : nullptr;
  }
};

}  // namespace test
