#include <algorithm>
#include <utility>

#include "core/outcome.h"
#include "core/text.h"
#include "core/transitions.h"

namespace core {

namespace {

/// The rank that the event is about; null if it has exited.
Rank* alive(Attempt& attempt, RankNumber number) {
  if (number >= attempt.ranks.size() || attempt.ranks[number].state == RankState::kExited) return nullptr;
  return &attempt.ranks[number];
}

void late(Applied& out, AttemptNumber number, RankNumber rank) {
  out.text = rank_text(rank) + " of " + attempt_text(number) + " is gone: nothing changes";
}

/// Handles a rank that is silent or hung. Its process may still exist.
template <typename Lost>
void on_lost_rank(Applied& out, const Lost& e, Cause cause, RankState state, const std::string& reason) {
  Attempt* attempt = alive(out.job, e.attempt);
  if (attempt == nullptr) return late(out, e.attempt);
  Rank* rank = alive(*attempt, e.rank);
  if (rank == nullptr) return late(out, e.attempt, e.rank);
  if (attempt->state == AttemptState::kDraining) {
    out.text = reason + "; " + attempt_text(e.attempt) + " is stopping already";
    return;
  }
  rank->state = state;
  drain(out, {cause, reason, false, e.rank, std::nullopt});
}

}  // namespace

void on(Applied& out, const RankJoined& e, Time at) {
  Attempt* attempt = alive(out.job, e.attempt);
  if (attempt == nullptr) return late(out, e.attempt);
  Rank* rank = alive(*attempt, e.rank);
  if (rank == nullptr) return late(out, e.attempt, e.rank);
  begin(out, *attempt, at);
  note_report(out.job, *attempt, e.rank);
  if (rank->state == RankState::kStarting) rank->state = RankState::kRunning;
  if (!e.node.empty()) rank->node = e.node;
  if (e.pid != 0) rank->pid = e.pid;
  out.text = rank_text(e.rank) + " joined";
  note_joined(out, *attempt, at);
}

void on(Applied& out, const RankExited& e, Time at) {
  Attempt* attempt = alive(out.job, e.attempt);
  if (attempt == nullptr) return late(out, e.attempt);
  Rank* rank = alive(*attempt, e.rank);
  if (rank == nullptr) return late(out, e.attempt, e.rank);
  begin(out, *attempt, at);
  rank->state = RankState::kExited;
  rank->exit = e.exit;
  rank->last_words = plain_words(e.last_words);

  const std::size_t left = ranks_left(*attempt);
  const Cause cause = cause_of_exit(e.exit, e.out_of_memory);
  out.text = exit_text(e);
  if (attempt->cause == Cause::kNone && cause != Cause::kCompleted) {
    attempt->error = plain_words(e.error);
    attempt->error_step = e.step;
    const Verdict verdict{cause, exit_text(e), cause == Cause::kPreempted, e.rank, e.exit};
    if (left > 0) return drain(out, verdict);
    attempt->cause = verdict.cause;
    attempt->reason = verdict.reason;
    attempt->culprit = verdict.culprit;
    attempt->culprit_exit = verdict.culprit_exit;
  }
  if (left > 0) return note_joined(out, *attempt, at);
  if (attempt->cause == Cause::kNone) {
    attempt->cause = Cause::kCompleted;
    attempt->reason = "every rank exited with 0";
  }
  end_attempt(out, at);
}

void on(Applied& out, const RankSilent& e, Time) {
  on_lost_rank(out, e, Cause::kRankSilent, RankState::kSilent, silent_text(e));
}

void on(Applied& out, const RankHung& e, Time) {
  on_lost_rank(out, e, Cause::kRankHung, RankState::kSilent, hung_text(e));
}

void on(Applied& out, const NodeLost& e, Time) {
  Attempt* attempt = alive(out.job, e.attempt);
  if (attempt == nullptr) return core::late(out, e.attempt);
  const std::string reason = node_lost_text(e);
  if (attempt->state == AttemptState::kDraining) {
    out.text = reason + "; " + attempt_text(e.attempt) + " is stopping already";
    return;
  }
  for (Rank& rank : attempt->ranks) {
    if (rank.node == e.node && rank.state != RankState::kExited) rank.state = RankState::kSilent;
  }
  drain(out, {Cause::kNodeFailed, reason, false, std::nullopt, std::nullopt});
}

}  // namespace core
