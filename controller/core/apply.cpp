#include "controller/core/apply.h"

#include <algorithm>
#include <utility>

#include "agent/protocol/files.h"
#include "controller/core/core_text.h"
#include "controller/core/requeue_policy.h"
#include "controller/core/transitions.h"
#include "spec/log_pattern.h"

namespace core {
namespace {

Attempt& add_attempt(Job& job, AttemptNumber number) {
  Attempt& attempt = job.attempts.emplace_back();
  attempt.number = number;
  attempt.reason_started = std::move(job.next_attempt_reason);
  job.next_attempt_at.reset();
  job.next_attempt_reason.clear();
  job.saved_anew = false;
  job.program.status.clear();
  job.program.bad_lines = 0;
  job.program.first_bad_line.clear();
  job.program.source_trouble.clear();
  job.program.unmatched.reset();
  return attempt;
}

void place_ranks(const Job& job, Attempt& attempt, const AttemptLaunched& e) {
  attempt.ranks.resize(job.world_size);
  for (std::size_t r = 0; r < attempt.ranks.size(); ++r) {
    attempt.ranks[r].node = e.node;
    attempt.ranks[r].pid = r < e.pids.size() ? e.pids[r] : 0;
  }
}

/// Marks the attempt as started. Does nothing if it has started already or is draining.
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

/// Notes that a command's rank has reported by itself. The caller has seen something that only the program can know.
void note_report(Job& job, Attempt& attempt, RankNumber rank) {
  if (!job.is_command) return;
  job.has_reported = true;
  if (rank < attempt.ranks.size()) attempt.ranks[rank].reports = true;
}

bool says_nothing_matches(const RankExited& e) {
  return e.source_trouble.starts_with(spec::kNothingMatches);
}

/// In most programs one rank alone prints. So a pattern that finds nothing in the log of a rank is worth a note only
/// where it has found nothing in those of the other ranks.
void note_unmatched(ProgramFacts& program, const RankExited& e) {
  std::set<std::string> own;
  const auto names =
      says_nothing_matches(e) ? plain_words(e.source_trouble).substr(spec::kNothingMatches.size()) : std::string();
  for (std::size_t at = 0; at < names.size();) {
    const auto end = std::min(names.find(", ", at), names.size());
    own.insert(names.substr(at, end - at));
    at = end + 2;
  }
  if (program.unmatched) std::erase_if(own, [&](const auto& name) { return !program.unmatched->contains(name); });
  program.unmatched = std::move(own);
}

/// At the end of an attempt, if nothing else was wrong with what [report] names.
void tell_unmatched(ProgramFacts& program) {
  if (!program.source_trouble.empty() || !program.unmatched || program.unmatched->empty()) return;
  std::string names;
  for (const auto& name : *program.unmatched) names += (names.empty() ? "" : ", ") + name;
  program.source_trouble = std::string(spec::kNothingMatches) + names;
}

/// Notes the facts that the report file of a rank that has ended leaves behind.
void note_last_report(ProgramFacts& program, const RankExited& e) {
  if (e.rank == 0) program.status = plain_words(e.status);
  note_unmatched(program, e);
  if (program.source_trouble.empty() && !e.source_trouble.empty() && !says_nothing_matches(e)) {
    program.source_trouble = "rank " + std::to_string(e.rank) + ": " + plain_words(e.source_trouble);
  }
  if (e.bad_lines == 0) return;
  if (program.bad_lines == 0) {
    program.first_bad_line = "rank " + std::to_string(e.rank) + ", " + plain_words(e.first_bad_line);
  }
  program.bad_lines += e.bad_lines;
}

/// Moves a starting attempt to kRunning once every rank has joined (or has exited with 0 already).
void note_joined(Applied& out, Attempt& attempt, Time at) {
  if (attempt.state != AttemptState::kStarting || ranks_missing(attempt) > 0) return;
  attempt.state = AttemptState::kRunning;
  attempt.running_at = at;
  out.effect.all_joined = true;
}

/// The newest attempt, if the event is about it; null if it has ended.
Attempt* alive(Job& job, AttemptNumber number) {
  if (job.attempts.empty() || job.attempts.back().number != number) return nullptr;
  return job.attempts.back().state == AttemptState::kEnded ? nullptr : &job.attempts.back();
}

/// Null if the rank has exited.
Rank* alive(Attempt& attempt, RankNumber number) {
  if (number >= attempt.ranks.size() || attempt.ranks[number].state == RankState::kExited) return nullptr;
  return &attempt.ranks[number];
}

// The effect of each kind of event about an attempt. The parameters tell apply() whether the attempt and the rank must
// be alive for it.

void on(Applied& out, const AttemptLaunched& e, Time at) {
  Job& job = out.job;
  if (alive(job, e.attempt) != nullptr) {
    out.effect.kind = Effect::Kind::kNothing;
    return;
  }
  if (!is_idle(job) || e.attempt != next_number(job) || !job.dependencies_met()) {
    out.effect.kind = Effect::Kind::kMustNotRun;
    out.actions.push_back(StopAttempt{e.attempt, false, {}});
    return;
  }
  Attempt& attempt = add_attempt(job, e.attempt);
  attempt.handle = e.handle;
  attempt.scheduler_job = e.scheduler_job;
  attempt.share = e.share;
  place_ranks(job, attempt, e);
  if (!e.queued) {
    begin(out, attempt, at);
    note_joined(out, attempt, at);
    return;
  }
  attempt.state = AttemptState::kQueued;
  attempt.queued_at = at;
  job.state = JobState::kQueued;
  // A person may have changed the time limit, or held the job, while the attempt was on its way to the scheduler.
  if (e.time_limit >= Millis{0} && e.time_limit != job.time_limit) {
    job.time_limit_asked = std::exchange(job.time_limit, e.time_limit);
    out.actions.push_back(LimitAttempt{e.attempt, *job.time_limit_asked});
  }
  if (job.held) out.actions.push_back(HoldAttempt{e.attempt, true});
}

void on(Applied& out, const AttemptLaunchFailed& e, Time at) {
  Job& job = out.job;
  if (!is_idle(job) || e.attempt != next_number(job)) {
    out.effect.kind = Effect::Kind::kNothing;
    return;
  }
  Attempt& attempt = add_attempt(job, e.attempt);
  record(out, {e.retryable ? Cause::kControllerLost : Cause::kFailed});
  if (e.retryable) return end_attempt(out, at);
  attempt.state = AttemptState::kEnded;
  attempt.ended_at = at;
  end_job(job, JobState::kFailed, at);
  out.effect.kind = Effect::Kind::kEnds;
}

void on(Applied& out, Attempt& attempt, const AttemptStarted& e, Time at) {
  for (std::size_t r = 0; r < attempt.ranks.size() && r < e.nodes.size(); ++r) {
    const bool better = e.seen_there && !e.nodes[r].empty();
    if (better || attempt.ranks[r].node.empty()) attempt.ranks[r].node = plain_words(e.nodes[r]);
  }
  if (attempt.state != AttemptState::kQueued) {
    out.effect.kind = Effect::Kind::kUnderWay;
    return;
  }
  begin(out, attempt, at);
  note_joined(out, attempt, at);
}

void on(Applied& out, Attempt&, const AttemptStopping& e, Time) {
  drain(out, {cause_of(e), e.save});
}

/// False: a checkpoint as new was known already.
bool note_checkpoint(Job& job, Step step) {
  if (step <= job.last_checkpoint_step) return false;
  job.last_checkpoint_step = step;
  refill_budgets(job, {Refill::By::kCheckpoint, step});
  return true;
}

// Where an attempt goes on from is the proof of a checkpoint, though the one that saved it was killed before it could
// tell.
void on(Applied& out, Attempt& attempt, const AttemptResumed& e, Time) {
  attempt.resumed_from_step = e.step;
  note_report(out.job, attempt, 0);
  out.effect.is_untold = note_checkpoint(out.job, e.step);
}

void on(Applied& out, Attempt& attempt, const CheckpointSaved& e, Time at) {
  note_report(out.job, attempt, 0);
  if (!e.path.empty()) {
    auto& kept = out.job.program.checkpoints;
    auto path = plain_words(e.path);
    std::erase_if(kept, [&](const ReportedCheckpoint& older) { return older.path == path; });  // it is overwritten
    kept.push_back({e.attempt, e.step, std::move(path), e.bytes, at});
    if (kept.size() > ProgramFacts::kCheckpointsKept) kept.erase(kept.begin());
  }
  if (note_checkpoint(out.job, e.step)) out.job.saved_anew = true;
}

void on(Applied& out, Attempt& attempt, const ProgramDescribed& e, Time) {
  note_report(out.job, attempt, 0);
  auto& program = out.job.program;
  out.effect.has_new_total = e.total_steps > 0 && e.total_steps != program.total_steps;
  out.effect.has_new_config = !e.config.empty() && e.config != program.config;
  if (out.effect.has_new_total) program.total_steps = e.total_steps;
  if (out.effect.has_new_config) program.config = e.config;
}

void on(Applied& out, Attempt& attempt, const CheckpointFolderSeen& e, Time at) {
  if (!e.trouble.empty()) {
    out.job.unseen_progress = plain_words(e.trouble);
    return;
  }
  if (e.fresh == 0) return;
  switch (worth_of_files(out.job.policy, attempt, e, at)) {
    case FilesWorth::kProgress:
      out.job.saved_anew = true;
      return refill_budgets(out.job, {Refill::By::kFiles});
    case FilesWorth::kBudgets:
      return refill_spent(out.job, {Refill::By::kFiles});
    case FilesWorth::kNothing:
      out.job.brief_files = true;
      out.effect.is_no_progress = true;
  }
}

void on(Applied& out, Attempt&, const TimeLimitReached&, Time) {
  drain(out, {Cause::kTimedOut, true});
}

void on(Applied& out, Attempt&, const TimeLimitAnswered& e, Time) {
  Job& job = out.job;
  out.effect.was_asked = job.time_limit_asked == e.time_limit;
  if (out.effect.was_asked) job.time_limit_asked.reset();
  if (e.refusal.empty()) job.time_limit = e.time_limit;
}

void on(Applied& out, Attempt& attempt, const AttemptGone& e, Time at) {
  if (attempt.cause == Cause::kNone) record(out, {e.cause == Cause::kNone ? Cause::kControllerLost : e.cause});
  end_attempt(out, at);
}

void on(Applied& out, Attempt& attempt, Rank& rank, const RankJoined& e, Time at) {
  begin(out, attempt, at);
  note_report(out.job, attempt, e.rank);
  if (rank.state == RankState::kStarting) rank.state = RankState::kRunning;
  if (!e.node.empty()) rank.node = e.node;
  if (e.pid != 0) rank.pid = e.pid;
  note_joined(out, attempt, at);
}

/// Notes the rank that decides the cause of the attempt's end.
void note_failure(Attempt& attempt, const RankExited& e) {
  attempt.error = plain_words(e.error);
  attempt.trace = e.trace;
  attempt.error_step = e.step;
  attempt.newest_step = e.attempt_step;
}

/// True if this rank's error explains why the rank that ended first has lost its connection.
bool is_first_cause(const Attempt& attempt, const RankExited& e) {
  if (attempt.cause != Cause::kFailed || e.attempt_step < 0 || !agent::protocol::is_of_a_survivor(attempt.error))
    return false;
  return is_surely_an_error(e.error) && !agent::protocol::is_of_a_survivor(e.error);
}

void on(Applied& out, Attempt& attempt, Rank& rank, const RankExited& e, Time at) {
  begin(out, attempt, at);
  rank.state = RankState::kExited;
  rank.exit = e.exit;
  rank.last_words = plain_words(e.last_words);
  note_last_report(out.job.program, e);

  const std::size_t left = ranks_left(attempt);
  const Cause cause = cause_of_exit(e.exit, e.out_of_memory);
  if (attempt.cause == Cause::kNone && cause != Cause::kCompleted) {
    note_failure(attempt, e);
    const Verdict verdict{cause, cause == Cause::kPreempted, e.rank, e.exit};
    if (left > 0) return drain(out, verdict);
    record(out, verdict);
  } else if (is_first_cause(attempt, e)) {
    note_failure(attempt, e);
    record(out, {Cause::kFailed, false, e.rank, e.exit});
    out.effect.is_first_cause = true;
  }
  if (left > 0) return note_joined(out, attempt, at);
  tell_unmatched(out.job.program);
  if (attempt.cause == Cause::kNone) record(out, {Cause::kCompleted});
  end_attempt(out, at);
}

/// Ends the attempt of a rank that is silent or hung. Its process may still exist.
void lose(Applied& out, const Attempt& attempt, Rank& rank, const Verdict& verdict) {
  if (attempt.state != AttemptState::kDraining) rank.state = RankState::kSilent;
  drain(out, verdict);
}

void on(Applied& out, Attempt& attempt, Rank& rank, const RankSilent& e, Time) {
  lose(out, attempt, rank, {Cause::kRankSilent, false, e.rank});
}

void on(Applied& out, Attempt& attempt, Rank& rank, const RankHung& e, Time) {
  lose(out, attempt, rank, {Cause::kRankHung, false, e.rank});
}

void on(Applied&, Attempt& attempt, const AttemptSuspected& e, Time) {
  if (attempt.state == AttemptState::kRunning || attempt.state == AttemptState::kStarting) attempt.suspicion = e.of;
}

void on(Applied& out, Attempt& attempt, const SuspicionOver&, Time) {
  if (!attempt.suspicion) out.effect.kind = Effect::Kind::kNothing;
  attempt.suspicion.reset();
}

void on(Applied& out, Attempt& attempt, const NodeLost& e, Time) {
  for (Rank& rank : attempt.ranks) {
    const bool lost = rank.node == e.node && rank.state != RankState::kExited;
    if (lost && attempt.state != AttemptState::kDraining) rank.state = RankState::kSilent;
  }
  drain(out, {Cause::kNodeFailed});
}

}  // namespace

Applied apply(Job now, const Event& event) {
  Applied out{std::move(now), {}, {}, {}};
  ++out.job.version;
  // Every kind has a function: a missing one does not compile.
  std::visit(
      [&](const auto& e) {
        if constexpr (requires { on(out, e, event.at); }) {
          on(out, e, event.at);
        } else if (Attempt* attempt = alive(out.job, e.attempt); attempt == nullptr) {
          out.effect.kind = Effect::Kind::kAttemptOver;
        } else if constexpr (!requires { e.rank; }) {
          on(out, *attempt, e, event.at);
        } else if (Rank* rank = alive(*attempt, e.rank); rank == nullptr) {
          out.effect.kind = Effect::Kind::kRankGone;
        } else {
          on(out, *attempt, *rank, e, event.at);
        }
      },
      event.body);
  tell(out, event);
  return out;
}

std::string_view type_name(const EventBody& body) {
  return std::visit([](const auto& event) { return event.kName; }, body);
}

AttemptNumber attempt_of(const EventBody& body) {
  return std::visit(
      [](const auto& event) -> AttemptNumber {
        if constexpr (requires { event.attempt; }) return event.attempt;
        return 0;
      },
      body);
}

}  // namespace core
