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
  attempt.reason_started = job.state == JobState::kPending ? "submitted" : job.next_attempt_reason;
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

/// Stops an attempt that the executor started but that must not run.
void stop_unexpected(Applied& out, AttemptNumber number) {
  const std::string reason = attempt_text(number) + " must not run: the job is " +
                             std::string(to_string(out.job.state)) +
                             (out.job.attempts.empty() ? "" : " at " + attempt_text(out.job.attempts.back().number));
  out.actions.push_back(StopAttempt{number, false, reason});
  out.text = reason + "; stopping it";
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
    out.text = attempt_text(e.attempt) + " has started already: nothing changes";
    return;
  }
  if (!is_idle(job) || e.attempt != next_number(job) || !job.dependencies_met()) return stop_unexpected(out, e.attempt);
  Attempt& attempt = add_attempt(job, e.attempt);
  attempt.handle = e.handle;
  attempt.scheduler_job = e.scheduler_job;
  attempt.share = e.share;
  place_ranks(job, attempt, e);
  if (e.queued) {
    attempt.state = AttemptState::kQueued;
    attempt.queued_at = at;
    attempt.reason = "queued" + (e.handle.empty() ? "" : " as " + plain_words(e.handle));
    job.state = JobState::kQueued;
    job.reason = attempt_text(e.attempt) + ": " + attempt.reason;
    out.text = attempt_text(e.attempt) + " " + attempt.reason + " (" + attempt.reason_started + ")";
    // A person may have changed the time limit, or held the job, while the attempt was on its way to the scheduler.
    if (e.time_limit >= Millis{0} && e.time_limit != job.time_limit) {
      job.time_limit_asked = std::exchange(job.time_limit, e.time_limit);
      out.actions.push_back(LimitAttempt{e.attempt, *job.time_limit_asked});
    }
    if (!job.held) return;
    out.actions.push_back(HoldAttempt{e.attempt, true});
    job.reason = what_it_waits_for(job);
    out.text += "; " + job.reason;
    return;
  }
  out.text = attempt_text(e.attempt) + " started" + (e.node.empty() ? "" : " on " + plain_words(e.node)) + " (" +
             attempt.reason_started + ")";
  begin(out, attempt, at);
  note_joined(out, attempt, at);
}

void on(Applied& out, const AttemptLaunchFailed& e, Time at) {
  Job& job = out.job;
  if (!is_idle(job) || e.attempt != next_number(job)) {
    out.text = attempt_text(e.attempt) + " was not expected to start: nothing changes";
    return;
  }
  Attempt& attempt = add_attempt(job, e.attempt);
  attempt.cause = e.retryable ? Cause::kControllerLost : Cause::kFailed;
  attempt.reason = std::string("could not be started") + (e.retryable ? "" : ", and trying again cannot help") + ": " +
                   plain_words(e.reason);
  if (e.retryable) return end_attempt(out, at);
  attempt.state = AttemptState::kEnded;
  attempt.ended_at = at;
  end_job(job, JobState::kFailed, attempt.reason, at);
  out.text = job.reason;
}

void on(Applied& out, Attempt& attempt, const AttemptStarted& e, Time at) {
  for (std::size_t r = 0; r < attempt.ranks.size() && r < e.nodes.size(); ++r) {
    const bool better = e.seen_there && !e.nodes[r].empty();
    if (better || attempt.ranks[r].node.empty()) attempt.ranks[r].node = plain_words(e.nodes[r]);
  }
  if (attempt.state != AttemptState::kQueued) {
    out.text = attempt_text(e.attempt) + " runs on its nodes";
    return;
  }
  std::vector<std::string> nodes;
  for (const auto& node : e.nodes) {
    if (!node.empty() && std::ranges::find(nodes, node) == nodes.end()) nodes.push_back(node);
  }
  std::string where;
  for (const auto& node : nodes) where += (where.empty() ? " on " : ", ") + plain_words(node);
  out.text = attempt_text(e.attempt) + " started" + where;
  begin(out, attempt, at);
  note_joined(out, attempt, at);
}

void on(Applied& out, Attempt&, const AttemptStopping& e, Time) {
  const std::string words = plain_words(e.reason);
  const Cause cause = e.cause == Cause::kNone ? Cause::kPreempted : e.cause;
  const std::string reason = words.empty() ? "the scheduler says: " + std::string(to_string(cause)) : words;
  drain(out, {cause, reason, e.save});
}

/// False: a checkpoint as new was known already.
bool note_checkpoint(Job& job, Step step) {
  if (step <= job.last_checkpoint_step) return false;
  job.last_checkpoint_step = step;
  refill_budgets(job, "checkpoint " + std::to_string(step));
  return true;
}

// Where an attempt goes on from is the proof of a checkpoint, though the one that saved it was killed before it could
// tell.
void on(Applied& out, Attempt& attempt, const AttemptResumed& e, Time) {
  const std::string where = e.step > 0 ? "resumed from step " + std::to_string(e.step) : "began at step 0";
  attempt.resumed_from_step = e.step;
  note_report(out.job, attempt, 0);
  out.text = attempt_text(e.attempt) + " " + where;
  if (note_checkpoint(out.job, e.step)) out.text += ", where a checkpoint is that nobody had told of";
}

void on(Applied& out, Attempt& attempt, const CheckpointSaved& e, Time at) {
  note_report(out.job, attempt, 0);
  out.text = "checkpoint saved at step " + std::to_string(e.step) + saved_text(e, at);
  if (!e.path.empty()) {
    auto& kept = out.job.program.checkpoints;
    auto path = plain_words(e.path);
    std::erase_if(kept, [&](const ReportedCheckpoint& older) { return older.path == path; });  // it is overwritten
    kept.push_back({e.attempt, e.step, std::move(path), e.bytes, at});
    if (kept.size() > ProgramFacts::kCheckpointsKept) kept.erase(kept.begin());
    out.text += ": " + kept.back().path;
  }
  if (note_checkpoint(out.job, e.step)) out.job.saved_anew = true;
}

void on(Applied& out, Attempt& attempt, const ProgramDescribed& e, Time) {
  note_report(out.job, attempt, 0);
  auto& program = out.job.program;
  std::string news;
  if (e.total_steps > 0 && e.total_steps != program.total_steps) {
    program.total_steps = e.total_steps;
    news = count_text(static_cast<std::size_t>(e.total_steps), "step") + " in all";
  }
  if (!e.config.empty() && e.config != program.config) {
    program.config = e.config;
    news += std::string(news.empty() ? "" : ", ") + "its settings";
  }
  out.text = "the program told of its run: " + (news.empty() ? std::string("nothing new") : news);
}

void on(Applied& out, Attempt& attempt, const CheckpointFolderSeen& e, Time at) {
  if (!e.trouble.empty()) {
    out.job.unseen_progress = plain_words(e.trouble);
    out.text = "it is not known whether " + attempt_text(e.attempt) + " saved anything: " + out.job.unseen_progress;
    return;
  }
  const std::string others = e.fresh > 1 ? " and " + std::to_string(e.fresh - 1) + " more" : "";
  out.text = "new in the checkpoint folder: " + plain_words(e.newest) + others;
  if (e.fresh == 0) return;
  const FilesWorth worth = worth_of_files(out.job.policy, attempt, e, at);
  if (worth == FilesWorth::kProgress) {
    out.job.saved_anew = true;
    refill_budgets(out.job, "new files in the checkpoint folder");
    return;
  }
  if (worth == FilesWorth::kBudgets) return refill_spent(out.job, "new files in the checkpoint folder");
  out.job.brief_files = true;
  out.text += "; this is no progress: the attempt was short and left no new file name";
}

void on(Applied& out, Attempt& attempt, const TimeLimitReached&, Time) {
  const Millis limit = attempt.state == AttemptState::kDraining ? Millis{0} : out.job.time_limit;
  const std::string words = limit > Millis{0} ? " of " + duration_text(limit) : "";
  drain(out, {Cause::kTimedOut, "time limit" + words + " reached", true});
}

void on(Applied& out, Attempt&, const TimeLimitAnswered& e, Time) {
  Job& job = out.job;
  const bool asked = job.time_limit_asked == e.time_limit;
  const std::string limit =
      e.time_limit > Millis{0} ? "a time limit of " + duration_text(e.time_limit) : "no time limit";
  if (asked) job.time_limit_asked.reset();
  if (e.refusal.empty()) {
    job.time_limit = e.time_limit;
    out.text = "the scheduler has taken " + limit;
    return;
  }
  const std::string kept = job.time_limit > Millis{0} ? duration_text(job.time_limit) + " stays in force"
                                                      : "the job still has no time limit";
  out.text = "the scheduler refuses " + limit + ": " + plain_words(e.refusal) + "; " + kept;
  if (asked) job.time_limit_refusal = out.text;
}

void on(Applied& out, Attempt& attempt, const AttemptGone& e, Time at) {
  if (attempt.cause == Cause::kNone) {
    const std::string words = plain_words(e.reason);
    attempt.cause = e.cause == Cause::kNone ? Cause::kControllerLost : e.cause;
    attempt.reason = words.empty() ? "the executor says: " + std::string(to_string(attempt.cause)) : words;
  }
  end_attempt(out, at);
}

void on(Applied& out, Attempt& attempt, Rank& rank, const RankJoined& e, Time at) {
  begin(out, attempt, at);
  note_report(out.job, attempt, e.rank);
  if (rank.state == RankState::kStarting) rank.state = RankState::kRunning;
  if (!e.node.empty()) rank.node = e.node;
  if (e.pid != 0) rank.pid = e.pid;
  out.text = "rank " + std::to_string(e.rank) + " joined";
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
  out.text = exit_text(e);
  if (attempt.cause == Cause::kNone && cause != Cause::kCompleted) {
    note_failure(attempt, e);
    const Verdict verdict{cause, exit_text(e), cause == Cause::kPreempted, e.rank, e.exit};
    if (left > 0) return drain(out, verdict);
    record(attempt, verdict);
  } else if (is_first_cause(attempt, e)) {
    // muster may have ended this rank before it could leave by itself.
    const std::string reason = e.exit.signal == 0 ? exit_text(e) : failed_text(e);
    note_failure(attempt, e);
    record(attempt, {Cause::kFailed, reason, false, e.rank, e.exit});
    out.job.reason = reason;
    out.text += "; this is the first cause";
  }
  if (left > 0) return note_joined(out, attempt, at);
  tell_unmatched(out.job.program);
  if (attempt.cause == Cause::kNone) {
    attempt.cause = Cause::kCompleted;
    attempt.reason = "every rank exited with 0";
    if (const auto& words = attempt.ranks.front().last_words; !words.empty()) attempt.reason += ": " + words;
  }
  end_attempt(out, at);
}

/// Ends the attempt of a rank that is silent or hung. Its process may still exist.
void lose(Applied& out, const Attempt& attempt, Rank& rank, const Verdict& verdict) {
  if (attempt.state != AttemptState::kDraining) rank.state = RankState::kSilent;
  drain(out, verdict);
}

void on(Applied& out, Attempt& attempt, Rank& rank, const RankSilent& e, Time) {
  lose(out, attempt, rank, {Cause::kRankSilent, silent_text(e), false, e.rank});
}

void on(Applied& out, Attempt& attempt, Rank& rank, const RankHung& e, Time) {
  lose(out, attempt, rank, {Cause::kRankHung, hung_text(e), false, e.rank});
}

void on(Applied& out, Attempt& attempt, const AttemptSuspected& e, Time at) {
  out.text = suspected_text(e);
  if (attempt.state != AttemptState::kRunning && attempt.state != AttemptState::kStarting) return;
  attempt.suspicion = e.of;
  out.job.reason = attempt_text(e.attempt) + ": " + suspected_text(e, at);
}

void on(Applied& out, Attempt& attempt, const SuspicionOver& e, Time) {
  out.text = suspicion_over_text(e);
  if (!attempt.suspicion) return;
  attempt.suspicion.reset();
  out.job.reason = attempt_text(e.attempt) + ": " + attempt.reason;
}

void on(Applied& out, Attempt& attempt, const NodeLost& e, Time) {
  for (Rank& rank : attempt.ranks) {
    const bool lost = rank.node == e.node && rank.state != RankState::kExited;
    if (lost && attempt.state != AttemptState::kDraining) rank.state = RankState::kSilent;
  }
  drain(out, {Cause::kNodeFailed, node_lost_text(e)});
}

}  // namespace

Applied apply(Job now, const Event& event) {
  Applied out{std::move(now), {}, ""};
  ++out.job.version;
  const auto late = [&](const std::string& what) { out.text = what + ": nothing changes"; };
  // Every kind has a function: a missing one does not compile.
  std::visit(
      [&](const auto& e) {
        if constexpr (requires { on(out, e, event.at); }) {
          on(out, e, event.at);
        } else if (Attempt* attempt = alive(out.job, e.attempt); attempt == nullptr) {
          late(attempt_text(e.attempt) + " is over");
        } else if constexpr (!requires { e.rank; }) {
          on(out, *attempt, e, event.at);
        } else if (Rank* rank = alive(*attempt, e.rank); rank == nullptr) {
          late("rank " + std::to_string(e.rank) + " of " + attempt_text(e.attempt) + " is gone");
        } else {
          on(out, *attempt, *rank, e, event.at);
        }
      },
      event.body);
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
