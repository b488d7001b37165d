#include "core/transitions.h"

#include <algorithm>

#include "core/text.h"

namespace core {

std::string attempt_text(AttemptNumber number) {
  return "attempt " + std::to_string(number);
}

std::string rank_text(RankNumber number) {
  return "rank " + std::to_string(number);
}

bool is_idle(const Job& job) {
  return job.state == JobState::kPending || job.state == JobState::kWaiting;
}

AttemptNumber next_number(const Job& job) {
  return static_cast<AttemptNumber>(job.attempts.size() + 1);
}

Attempt* alive(Job& job, AttemptNumber number) {
  if (job.attempts.empty() || job.attempts.back().number != number) return nullptr;
  return job.attempts.back().state == AttemptState::kEnded ? nullptr : &job.attempts.back();
}

void late(Applied& out, AttemptNumber number) {
  out.text = attempt_text(number) + " is over: nothing changes";
}

void begin(Applied& out, Attempt& attempt, Time at) {
  if (attempt.started_at || attempt.state == AttemptState::kDraining) return;
  attempt.started_at = at;
  attempt.state = AttemptState::kStarting;
  // A command's ranks need not join.
  for (Rank& rank : attempt.ranks) {
    if (out.job.is_command && rank.state == RankState::kStarting) rank.state = RankState::kRunning;
  }
  out.job.state = JobState::kRunning;
}

void note_report(Job& job, Attempt& attempt, RankNumber rank) {
  if (!job.is_command) return;
  job.has_reported = true;
  if (rank < attempt.ranks.size()) attempt.ranks[rank].reports = true;
}

void note_joined(Applied& out, Attempt& attempt, Time at) {
  if (attempt.state != AttemptState::kStarting) return;
  const auto missing =
      std::ranges::count_if(attempt.ranks, [](const Rank& rank) { return rank.state == RankState::kStarting; });
  if (missing > 0) {
    attempt.reason = "waiting for " + count_text(static_cast<std::size_t>(missing), "rank") + " to join";
  } else {
    attempt.state = AttemptState::kRunning;
    attempt.running_at = at;
    attempt.reason = "running";
    if (!out.job.is_command) out.text += "; every rank has joined";
  }
  out.job.reason = attempt_text(attempt.number) + ": " + attempt.reason;
}

}  // namespace core
