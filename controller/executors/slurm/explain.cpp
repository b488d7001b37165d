#include "controller/executors/slurm/slurm_attempt.h"

#include <algorithm>

#include "slurm/batch_script.h"
#include "slurm/host_list.h"
#include "slurm/pending_reason.h"

namespace executors::on_slurm {
namespace {

using By = Verdict::By;
using core::Cause;
using ::slurm::JobPhase;
using ::slurm::Reason;

constexpr const char* kPreempted = "preempted in Slurm";
constexpr const char* kPreemptedWithGrace = "preempted in Slurm; it gives the ranks time to save";
constexpr const char* kNotLaunched = "Slurm could not start it on its nodes, and holds it (launch failed)";
constexpr const char* kTimeLimit = "Slurm ended it at the time limit";

/// "node[1-2]" of the nodes of ranks.
std::string each_once(const std::vector<std::string>& nodes) {
  std::vector<std::string> once;
  for (const auto& node : nodes) {
    if (std::ranges::find(once, node) == once.end()) once.push_back(node);
  }
  return ::slurm::compress_hosts(once);
}

// The nodes are the only trace of a node that was down for a moment.
std::string requeued_text(const std::vector<std::string>& nodes) {
  return "requeued in Slurm (scontrol requeue, or by the cluster itself)" +
         (nodes.empty() ? std::string() : "; it ran on " + each_once(nodes));
}

std::string node_failed_text(const std::vector<std::string>& nodes) {
  if (nodes.empty()) return "Slurm says that a node failed";
  if (nodes.front() == nodes.back()) return "Slurm says that node " + nodes.front() + " failed";
  return "Slurm says that a node failed; it ran on " + each_once(nodes);
}

std::string job_text(const ::slurm::JobId& id) {
  return "Slurm job " + ::slurm::to_string(id);
}

/// A run that ended by itself, and whose ranks left no word.
Verdict by_ranks(const std::string& what, const std::optional<::slurm::ExitStatus>& exit) {
  if (!exit || *exit == ::slurm::ExitStatus{}) return {By::kRanks, Cause::kFailed, what};
  if (exit->signal != 0) return {By::kRanks, Cause::kFailed, what + " (signal " + std::to_string(exit->signal) + ")"};
  if (exit->code == ::slurm::kUnfitExit) {
    return {By::kRanks, Cause::kNodeFailed,
            "the health check failed; its output is in slurm.log of the attempt's folder"};
  }
  const auto cause = exit->code == core::kExitRequeue ? Cause::kPreempted : Cause::kFailed;
  return {By::kRanks, cause, what + " (exit code " + std::to_string(exit->code) + ")"};
}

// [Note: requeued for its exit code] Where RequeueExit has 99, as on some sites, Slurm starts a run again whose ranks
// left with 99. Slurm lists such a job differently from a job that somebody requeued: the exit code of the run stays,
// and it stays for a run that ended by itself only. The exits of the ranks are the cause of such an end. If the ranks
// left with 99 of their own will, the end costs the budget of preemptions. Otherwise a program that always leaves with
// 99 would be started for ever. If the ranks had been told to leave, they were told within a grace period that was over
// before Slurm was asked: all other ways to be told leave no exit code.
Verdict requeued_for_its_exit(const ::slurm::JobId& id, const ::slurm::ExitStatus& exit) {
  auto verdict = by_ranks(job_text(id) + " ended and would be started again by Slurm", exit);
  verdict.run_again = true;
  return verdict;
}

Verdict again(Cause cause, std::string reason) {
  return {.by = By::kSlurm,
          .cause = cause,
          .reason = std::move(reason),
          .save = cause != Cause::kNodeFailed,
          .run_again = true};
}

Verdict explain_run_again(const Evidence& e) {
  const auto phase = ::slurm::classify(e.job.state.state);
  // The run that Slurm could not launch is a second run if every rank of this attempt has begun.
  const bool no_launch = ::slurm::understand_reason(e.job.reason) == Reason::kLaunchFailure;
  const bool is_second = no_launch && e.all_begun;
  const auto lost = std::ranges::find_if(e.nodes, [&](const auto& node) { return e.down.contains(node); });
  if (e.preempted) return again(Cause::kPreempted, kPreempted);
  if (no_launch && !is_second) return again(Cause::kNodeFailed, kNotLaunched);
  if (lost != e.nodes.end()) {
    const auto& why = e.down.at(*lost);
    return again(Cause::kNodeFailed,
                 "Slurm says that node " + *lost + " is down" + (why.empty() ? "" : " (" + why + ")"));
  }
  if (e.job.restarts == 0 || is_second) return again(Cause::kRequeued, kForgotten);
  if (phase == JobPhase::kQueued && e.job.exit) return requeued_for_its_exit(e.job.id, *e.job.exit);
  auto verdict = again(Cause::kRequeued, requeued_text(e.nodes));
  // A listing names a preemption only while the first run ends.
  verdict.accounting_next = phase != JobPhase::kEnding;
  return verdict;
}

Verdict explain_end(const Evidence& e) {
  const auto slurm_did = [](Cause cause, std::string reason) { return Verdict{By::kSlurm, cause, std::move(reason)}; };
  const auto& state = e.job.state;
  const auto ended_as = job_text(e.job.id) + " ended as " + std::string(::slurm::name(state.state));
  if (e.preempted) return slurm_did(Cause::kPreempted, kPreempted);
  const auto cause = cause_of(state.state);
  if (!cause) {
    auto verdict = by_ranks(ended_as, e.job.exit);
    verdict.is_success = state.state == ::slurm::JobState::kCompleted;
    return verdict;
  }
  switch (*cause) {
    case Cause::kTimedOut:
      return slurm_did(*cause, kTimeLimit);
    case Cause::kNodeFailed:
      return slurm_did(*cause, node_failed_text(e.nodes));
    case Cause::kOutOfMemory:
      return slurm_did(*cause, "Slurm says that it ran out of memory");
    case Cause::kCancelled: {
      auto verdict = slurm_did(
          *cause, "cancelled in Slurm" + (state.by.empty() ? "" : " by " + state.by) + ", not through muster");
      verdict.accounting_next = state.by.empty();
      return verdict;
    }
    default:
      return slurm_did(*cause, ended_as);
  }
}

// The job's own limit is the controller's to watch. It is never later than Slurm's.
std::optional<Running::Limit> limit_of(const Observation& seen, core::Millis stop_grace) {
  const auto& job = *seen.job;
  if (job.state.state != ::slurm::JobState::kRunning || !job.time_limit || !job.ends) return std::nullopt;
  const core::Millis limit = *job.time_limit;
  const auto left = std::chrono::duration_cast<core::Millis>(*job.ends - seen.slurm_now);
  return Running::Limit{seen.now + left - std::min(stop_grace, limit / 2), limit};
}

std::optional<core::Millis> woken_at(const Listed& before, core::Millis now) {
  if (std::holds_alternative<Suspended>(before)) return now;
  const auto* running = std::get_if<Running>(&before);
  return running != nullptr ? running->woken_at : std::nullopt;
}

}  // namespace

bool is_run_again(const Evidence& e) {
  return e.job.restarts > 0 || (e.begun && ::slurm::classify(e.job.state.state) == JobPhase::kQueued);
}

Verdict explain(const Evidence& e) {
  if (is_run_again(e)) return explain_run_again(e);
  const auto reason = ::slurm::understand_reason(e.job.reason);
  switch (::slurm::classify(e.job.state.state)) {
    case JobPhase::kActive:
      if (e.preempted) return {By::kSlurm, Cause::kPreempted, kPreemptedWithGrace, true};
      return {};
    case JobPhase::kEnding:  // a cancelled job and one that ended by itself look alike
      if (e.preempted) return {By::kSlurm, Cause::kPreempted, kPreempted};
      if (reason == Reason::kTimeLimit) return {By::kSlurm, Cause::kTimedOut, kTimeLimit};
      if (reason == Reason::kNodeDown) return {By::kSlurm, Cause::kNodeFailed, node_failed_text(e.nodes)};
      return {};
    case JobPhase::kEnded:
      return explain_end(e);
    default:
      return {};
  }
}

Verdict explain(const ::slurm::PastRun& run, bool run_again, const std::vector<std::string>& nodes) {
  const auto cause = cause_of(run.state.state);
  const bool requeued = run.state.state == ::slurm::JobState::kRequeued;
  if (run_again && cause == Cause::kPreempted) return again(*cause, kPreempted);
  if (run_again && cause == Cause::kNodeFailed) return again(*cause, node_failed_text(nodes));
  if (run_again || requeued) {
    if (run.exit != ::slurm::ExitStatus{}) return requeued_for_its_exit(run.id, run.exit);
    return again(Cause::kRequeued, requeued_text(nodes));
  }
  ::slurm::ListedJob job;
  job.id = run.id;
  job.state = run.state;
  job.exit = run.exit;
  return explain_end({.job = job, .nodes = nodes, .down = {}});
}

std::optional<core::Cause> cause_of(::slurm::JobState state) {
  switch (state) {
    case ::slurm::JobState::kPreempted:
      return Cause::kPreempted;
    case ::slurm::JobState::kTimeout:
    case ::slurm::JobState::kDeadline:
      return Cause::kTimedOut;
    case ::slurm::JobState::kNodeFail:
    case ::slurm::JobState::kBootFail:
      return Cause::kNodeFailed;
    case ::slurm::JobState::kOutOfMemory:
      return Cause::kOutOfMemory;
    case ::slurm::JobState::kCancelled:
      return Cause::kCancelled;
    case ::slurm::JobState::kRevoked:
      return Cause::kControllerLost;
    default:
      return std::nullopt;
  }
}

std::optional<Listed> newest_listed(const SlurmSide& side) {
  return std::visit(
      [](const auto& state) -> std::optional<Listed> {
        using State = std::decay_t<decltype(state)>;
        if constexpr (std::is_same_v<State, Missing>) return state.before;
        if constexpr (std::is_constructible_v<Listed, State>) return Listed(state);
        return std::nullopt;
      },
      side);
}

Listed next(const Listed& before, const Observation& seen, core::Millis stop_grace) {
  const auto state = seen.job->state.state;
  const auto* ending = std::get_if<Ending>(&before);
  switch (::slurm::classify(state)) {
    case ::slurm::JobPhase::kQueued:
      return Queued{};
    case ::slurm::JobPhase::kEnding:
      return Ending{ending != nullptr ? ending->since : seen.now};
    case ::slurm::JobPhase::kActive:
      if (state == ::slurm::JobState::kSuspended || state == ::slurm::JobState::kStopped) return Suspended{};
      if (state == ::slurm::JobState::kConfiguring && std::holds_alternative<Queued>(before)) return Queued{};
      return Running{limit_of(seen, stop_grace), woken_at(before, seen.now)};
    default:  // a state of a later Slurm says nothing
      if (std::holds_alternative<Queued>(before)) return Queued{};
      return Running{std::nullopt, woken_at(before, seen.now)};
  }
}

Missing next_missing(const SlurmSide& before, core::Millis now) {
  auto missing = Missing{newest_listed(before).value_or(Listed()), now, 0, std::nullopt};
  if (const auto* again = std::get_if<Missing>(&before)) missing = *again;
  ++missing.listings;
  return missing;
}

}  // namespace executors::on_slurm
