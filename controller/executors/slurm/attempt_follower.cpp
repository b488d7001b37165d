#include "executors/slurm/attempt_follower.h"

#include <signal.h>

#include <algorithm>

#include "core/text.h"
#include "executors/slurm/health_check.h"
#include "executors/slurm/launch_failure.h"
#include "slurm/host_list.h"

namespace runtime::on_slurm {
namespace {

using Process = TaskReport::Process;

bool has_signal(const TaskReport& report, int number) {
  return std::ranges::find(report.signals_seen, number) != report.signals_seen.end();
}

/// Whether somebody outside may have ended it.
bool may_be_slurms(const TaskReport& report) {
  if (!report.signals_seen.empty() || report.exit.code == core::kExitRequeue) return true;
  return report.exit.signal == SIGTERM || report.exit.signal == SIGKILL || report.exit.signal == SIGINT;
}

/// Whether it says by itself why it ended: no other rank's end can be behind it.
bool speaks_for_itself(const TaskReport& report) {
  if (report.out_of_memory || !report.trouble.empty()) return true;
  if (report.exit.signal != 0) return false;
  return report.exit.code == 0 || report.exit.code == core::kExitNeverRequeue ||
         report.exit.code == core::kExitOutOfMemory;
}

bool has_ended(const TaskReport& report) {
  return report.process == Process::kExited || report.process == Process::kStepLost;
}

constexpr const char* kPreemptedInSlurm = "preempted in Slurm";
constexpr const char* kRequeuedInSlurm = "requeued in Slurm (scontrol requeue, or by the cluster itself)";
constexpr const char* kToldToLeave = "told to leave in Slurm (SIGTERM), which would start it again for its exit code";
constexpr const char* kToldToLeaveUnexplained = "told to leave (SIGTERM), and Slurm did not say why";
constexpr const char* kForgottenBySlurm = "Slurm does not know any more that it runs, and starts it again";
constexpr const char* kNotLaunchedInSlurm = "Slurm could not start it on its nodes, and holds it (launch failed)";

/// "node[1-2]" of the nodes of ranks.
std::string each_once(std::vector<std::string> nodes) {
  std::vector<std::string> once;
  for (auto& node : nodes) {
    if (std::ranges::find(once, node) == once.end()) once.push_back(std::move(node));
  }
  return ::slurm::compress_hosts(once);
}

std::string job_text(const ::slurm::JobId& id) {
  return "Slurm job " + ::slurm::to_string(id);
}

/// What an end is called that neither Slurm nor any rank explains.
struct End {
  core::Cause cause = core::Cause::kFailed;
  std::string reason;
};
End end_of(const std::string& what, const std::optional<::slurm::ExitStatus>& exit) {
  if (!exit || *exit == ::slurm::ExitStatus{}) return {core::Cause::kFailed, what};
  if (exit->signal != 0) return {core::Cause::kFailed, what + " (signal " + std::to_string(exit->signal) + ")"};
  if (exit->code == kUnfitExit) {
    return {core::Cause::kNodeFailed, "the health check failed; its output is in slurm.log of the attempt's folder"};
  }
  const auto cause = exit->code == core::kExitRequeue ? core::Cause::kPreempted : core::Cause::kFailed;
  return {cause, what + " (exit code " + std::to_string(exit->code) + ")"};
}

}  // namespace

std::optional<core::Cause> cause_of(::slurm::JobState state) {
  switch (state) {
    case ::slurm::JobState::kPreempted:
      return core::Cause::kPreempted;
    case ::slurm::JobState::kTimeout:
    case ::slurm::JobState::kDeadline:
      return core::Cause::kTimedOut;
    case ::slurm::JobState::kNodeFail:
    case ::slurm::JobState::kBootFail:
      return core::Cause::kNodeFailed;
    case ::slurm::JobState::kOutOfMemory:
      return core::Cause::kOutOfMemory;
    case ::slurm::JobState::kCancelled:
      return core::Cause::kCancelled;
    case ::slurm::JobState::kRevoked:
      return core::Cause::kControllerLost;
    default:
      return std::nullopt;
  }
}

AttemptFollower::AttemptFollower(Followed what, core::Millis now)
    : what_(std::move(what)),
      since_(now),
      ranks_(what_.world_size),
      started_(what_.started),
      started_by_(what_.started ? std::optional(now - core::Millis(1)) : std::nullopt),
      explained_(what_.draining) {}

void AttemptFollower::task(core::RankNumber number, const TaskReport& report, core::Millis now) {
  if (number >= ranks_.size()) return;
  auto& rank = ranks_[number];
  const bool news = !rank.report || rank.report->signals_seen.size() != report.signals_seen.size();
  rank.heard_at = now;
  started_by_ = std::min(started_by_.value_or(now), now);
  if (rank.told || rank.exited_at) return;
  rank.report = report;
  if (number < nodes_.size() && !report.node.empty() && nodes_[number] != report.node) {
    nodes_[number] = report.node;
    moved_since_ = moved_since_.value_or(now);
  }
  if (!report.signals_seen.empty() && news) wants_listing_ = true;
  if (has_signal(report, SIGTERM) && !rank.asked_to_leave_at) rank.asked_to_leave_at = now;
  if (!has_ended(report)) {
    // Only our own --signal sends it.
    if (has_signal(report, SIGUSR2)) explain(core::Cause::kTimedOut, "the time limit is near");
    return;
  }
  rank.exited_at = now;
  if (report.process == Process::kStepLost) {
    explain(core::Cause::kNodeFailed,
            "rank " + std::to_string(number) + (report.node.empty() ? "" : " on " + report.node) +
                " lost its slurmstepd, and was ended with it",
            false);
  }
  if (has_signal(report, SIGUSR2)) explain(core::Cause::kTimedOut, "the time limit is near");
  if (by_itself_ && has_signal(report, SIGTERM)) explain(core::Cause::kPreempted, kToldToLeave, false);
  if (explained_) return tell_exit(number);
  rank.cleared = !may_be_slurms(report);
  wants_listing_ = wants_listing_ || !rank.cleared;
  release_settled(now);
}

void AttemptFollower::failing(core::RankNumber number) {
  if (number < ranks_.size() && !ranks_[number].failing) ranks_[number].failing = ++failing_;
}

void AttemptFollower::file(core::RankNumber number, const TaskReport* report, core::Millis now) {
  if (number >= ranks_.size() || ranks_[number].told || report == nullptr || !has_ended(*report)) return;
  const auto heard_at = ranks_[number].heard_at;
  if (!ranks_[number].exited_at) {
    ranks_[number].from_file = true;
    task(number, *report, now);
  }
  ranks_[number].heard_at = heard_at;
  if (!ended_at_ || ranks_[number].told) return;
  ranks_[number].cleared = true;
  release_settled(now);
}

void AttemptFollower::listed(const ::slurm::ListedJob* job, const DownNodes& down, core::Millis asked_at,
                             core::Millis now, core::Time wall) {
  save_at_.reset();
  wants_listing_ = false;
  answered_ = asked_at;
  look_at(job, down, asked_at, now, wall);
  leave_unexplained(asked_at, now);
}

void AttemptFollower::look_at(const ::slurm::ListedJob* job, const DownNodes& down, core::Millis asked_at,
                              core::Millis now, core::Time wall) {
  if (job == nullptr) return missing(asked_at, now);
  missing_listings_ = 0;
  missing_since_.reset();
  look_at_suspension(job->state.state, now);
  const auto phase = ::slurm::classify(job->state.state);
  const bool ending = phase == ::slurm::JobPhase::kEnding;
  ending_since_ = ending ? std::optional(ending_since_.value_or(now)) : std::nullopt;
  // slurmctld died before it had written down that it runs.
  const bool forgotten = phase == ::slurm::JobPhase::kQueued && started_;
  if (job->restarts > 0 || forgotten) return look_at_restart(*job, down, now);
  if (phase == ::slurm::JobPhase::kEnded) return look_at_end(*job, now);
  if (job->preempted) preempted_ = true;
  const auto state = job->state.state;
  if (phase == ::slurm::JobPhase::kActive) {
    // Its nodes may take minutes to boot.
    if (state != ::slurm::JobState::kConfiguring) tell_started(*job);
    look_at_limit(*job, now, wall);
    if (preempted_) {
      explain(core::Cause::kPreempted, "preempted in Slurm; it gives the ranks time to save");
    }
    // Slurm knows of nothing: what ended, ended by itself.
    for (auto& rank : ranks_) {
      rank.cleared = rank.cleared || (rank.exited_at && asked_at > *rank.exited_at);
    }
    release_settled(now);
  } else if (phase == ::slurm::JobPhase::kEnding) {
    look_at_ending(*job);
  }
}

void AttemptFollower::look_at_suspension(::slurm::JobState state, core::Millis now) {
  const bool was = suspended_;
  suspended_ = state == ::slurm::JobState::kSuspended || state == ::slurm::JobState::kStopped;
  if (suspended_) woken_at_.reset();
  if (was && !suspended_) woken_at_ = now;
}

// The job's own limit is the controller's to watch; it is never later than this one.
void AttemptFollower::look_at_limit(const ::slurm::ListedJob& job, core::Millis now, core::Time wall) {
  if (job.state.state != ::slurm::JobState::kRunning || !job.time_limit || !job.ends) return;
  const core::Millis limit = *job.time_limit;
  save_at_ = now + std::chrono::duration_cast<core::Millis>(*job.ends - wall) - std::min(what_.stop_grace, limit / 2);
  limit_ = limit;
}

// Its final state is not told yet. A cancelled job and one that ended by itself look alike here.
void AttemptFollower::look_at_ending(const ::slurm::ListedJob& job) {
  if (preempted_) {
    explain(core::Cause::kPreempted, kPreemptedInSlurm, false);
  } else if (job.reason == "TimeLimit") {
    explain(core::Cause::kTimedOut, "Slurm ended it at the time limit", false);
  } else if (job.reason == "NodeDown") {
    explain(core::Cause::kNodeFailed, node_failed_text(), false);
  }
  wants_listing_ = !explained_;
}

void AttemptFollower::tell_started(const ::slurm::ListedJob& job) {
  if (answered_ && !started_by_) started_by_ = answered_;
  if (!nodes_.empty()) return;
  const auto hosts = ::slurm::expand_hosts(job.node_list);
  if (const auto* names = std::get_if<std::vector<std::string>>(&hosts)) {
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const auto node = r / std::max<std::uint32_t>(1, what_.ranks_per_node);
      const auto& report = ranks_[r].report;
      const bool has_spoken = report && !report->node.empty();
      nodes_.push_back(has_spoken ? report->node : node < names->size() ? (*names)[node] : std::string());
    }
  }
  if (!std::exchange(started_, true)) facts_.emplace_back(core::AttemptStarted{what_.key.number, nodes_});
}

// All at once: of a thousand ranks each would be an event.
void AttemptFollower::tell_nodes(core::Millis now) {
  if (!moved_since_ || core_over_) return;
  if (!every_rank_started() && now - *moved_since_ < kHoldMost) return;
  moved_since_.reset();
  facts_.emplace_back(core::AttemptStarted{what_.key.number, nodes_, true});
}

// Slurm's own second run. While the first is still going on (COMPLETING) its ranks may be saving.
void AttemptFollower::look_at_restart(const ::slurm::ListedJob& job, const DownNodes& down, core::Millis now) {
  if (job.preempted) preempted_ = true;
  const auto lost = std::ranges::find_if(nodes_, [&](const auto& node) { return down.contains(node); });
  // What Slurm could not launch is a second run where every rank of this one had come to life.
  const bool second_run = is_launch_failure(job) && every_rank_started();
  const bool unknown_to_slurm = job.restarts == 0 || second_run;
  auto cause = core::Cause::kRequeued;
  std::string reason = unknown_to_slurm ? kForgottenBySlurm : requeued_text();
  if (preempted_) {
    cause = core::Cause::kPreempted, reason = kPreemptedInSlurm;
  } else if (is_launch_failure(job) && !second_run) {
    cause = core::Cause::kNodeFailed, reason = kNotLaunchedInSlurm;
  } else if (lost != nodes_.end()) {
    const auto& why = down.at(*lost);
    cause = core::Cause::kNodeFailed;
    reason = "Slurm says that node " + *lost + " is down" + (why.empty() ? "" : " (" + why + ")");
  }
  const auto phase = ::slurm::classify(job.state.state);
  if (phase == ::slurm::JobPhase::kEnding) {
    explain(cause, reason, cause != core::Cause::kNodeFailed);
    release_exits();
    wants_listing_ = !all_told();
    return;
  }
  leftover_ = phase != ::slurm::JobPhase::kEnded;
  slurm_over_ = !leftover_;
  if (by_itself_) return;
  if (cause == core::Cause::kRequeued && !second_run && phase == ::slurm::JobPhase::kQueued && job.exit) {
    return left_by_itself(job_text(job.id), *job.exit, now);
  }
  // Whether it was preempted is told only while its first run ends.
  unseen_ = cause == core::Cause::kRequeued && !unknown_to_slurm && !explained_ && !ended_at_ && !history_told_;
  if (unseen_) return ask_history(now);
  restarted_unseen(cause, reason, now);
}

void AttemptFollower::restarted_unseen(core::Cause cause, const std::string& reason, core::Millis now) {
  unseen_ = false;
  explain(cause, reason, cause != core::Cause::kNodeFailed);
  release_exits();
  started_ = true;  // whether or not anybody saw it
  if (!ended_at_) slurm_ended(cause, reason, now);
}

// [Note: requeued for its exit code] Where RequeueExit has 99, as some sites do, Slurm starts a run again whose ranks
// left with it. What Slurm lists then differs from a job that somebody requeued: it keeps the exit code of a run that
// ended by itself, and of no other. Such a run is what its ranks say: left with 99 of their own will, it costs the
// budget of preemptions, or a program that always does so would be started for ever. If they had been told to leave, it
// was within a grace period that was over before Slurm was asked: all other ways to be told leave no exit code.
void AttemptFollower::left_by_itself(const std::string& job, const ::slurm::ExitStatus& exit, core::Millis now) {
  unseen_ = false;
  by_itself_ = true;
  started_ = true;  // whether or not anybody saw it
  const auto end = end_of(job + " ended and would be started again by Slurm", exit);
  if (!ended_at_) slurm_ended(end.cause, end.reason, now);
  for (auto& rank : ranks_) {
    if (!rank.exited_at) continue;
    rank.cleared = true;
    if (has_signal(*rank.report, SIGTERM)) explain(core::Cause::kPreempted, kToldToLeave, false);
  }
  release_settled(now);
}

// A node that was down for a moment alone leaves no other trace.
std::string AttemptFollower::requeued_text() const {
  return kRequeuedInSlurm + (nodes_.empty() ? std::string() : "; it ran on " + each_once(nodes_));
}

std::string AttemptFollower::node_failed_text() const {
  if (nodes_.empty()) return "Slurm says that a node failed";
  if (nodes_.front() == nodes_.back()) return "Slurm says that node " + nodes_.front() + " failed";
  return "Slurm says that a node failed; it ran on " + each_once(nodes_);
}

void AttemptFollower::ask_history(core::Millis now) {
  if (!history_told_ && !history_since_) history_since_ = now;
}

void AttemptFollower::remembered(const ::slurm::PastRun* run, core::Millis now) {
  if (!wants_history()) return;
  history_told_ = true;
  const auto cause = run == nullptr ? std::nullopt : cause_of(run->state.state);
  if (unseen_ && cause == core::Cause::kPreempted) return restarted_unseen(*cause, kPreemptedInSlurm, now);
  if (unseen_ && cause == core::Cause::kNodeFailed) return restarted_unseen(*cause, node_failed_text(), now);
  const bool by_itself = run != nullptr && run->exit != ::slurm::ExitStatus{};
  if (unseen_ && by_itself) return left_by_itself(job_text(run->id), run->exit, now);
  if (unseen_) return restarted_unseen(core::Cause::kRequeued, requeued_text(), now);
  if (by_whom_) {
    if (run != nullptr && cause == core::Cause::kCancelled) by_whom_->state.by = run->state.by;
    return look_at_end(::slurm::ListedJob(*by_whom_), now);
  }
  // Otherwise it is missing; unless it has been listed again meanwhile, or has ended in another way.
  if (run == nullptr || !missing_since_ || ended_at_ || explained_) return;
  if (run->state.state == ::slurm::JobState::kRequeued) {
    slurm_over_ = true;
    if (by_itself) return left_by_itself(job_text(run->id), run->exit, now);
    return restarted_unseen(core::Cause::kRequeued, requeued_text(), now);
  }
  ::slurm::ListedJob job;
  job.id = run->id;
  job.state = run->state;
  job.node_list = run->node_list;
  job.exit = run->exit;
  look_at_end(job, now);
}

void AttemptFollower::look_at_end(const ::slurm::ListedJob& job, core::Millis now) {
  slurm_over_ = true;
  if (ended_at_) return;
  // It may have run from its start to its end while nobody followed it.
  if (!job.node_list.empty()) tell_started(job);
  if (job.preempted) preempted_ = true;
  const auto state = std::string(::slurm::name(job.state.state));
  std::string reason = job_text(job.id) + " ended as " + state;
  auto cause = cause_of(job.state.state);
  if (cause == core::Cause::kCancelled) {
    if (job.state.by.empty() && !explained_ && !preempted_ && !history_told_) {
      by_whom_ = job;  // its ranks' ends wait with it
      return ask_history(now);
    }
    reason = "cancelled in Slurm" + (job.state.by.empty() ? "" : " by " + job.state.by) + ", not through muster";
  }
  if (cause == core::Cause::kTimedOut) reason = "Slurm ended it at the time limit";
  if (cause == core::Cause::kNodeFailed) reason = node_failed_text();
  if (cause == core::Cause::kOutOfMemory) reason = "Slurm says that it ran out of memory";
  if (preempted_) cause = core::Cause::kPreempted, reason = kPreemptedInSlurm;
  if (cause) explain(*cause, reason, false);
  const auto end = cause ? End{*cause, reason} : end_of(reason, job.exit);
  ended_well_ = !cause && job.state.state == ::slurm::JobState::kCompleted;
  by_whom_.reset();
  slurm_ended(end.cause, end.reason, now);
  for (auto& rank : ranks_) rank.cleared = rank.cleared || rank.exited_at.has_value();
  release_settled(now);
}

void AttemptFollower::slurm_ended(core::Cause cause, const std::string& reason, core::Millis now) {
  ended_at_ = now;
  end_cause_ = cause;
  end_reason_ = reason;
  // One that never ran has no ranks to wait for.
  if (!started_ && std::ranges::none_of(ranks_, [](const Rank& rank) { return rank.report.has_value(); })) give_up(now);
}

void AttemptFollower::missing(core::Millis asked_at, core::Millis now) {
  ++missing_listings_;
  if (!missing_since_) missing_since_ = now;
  if (core_over_) slurm_over_ = true;
  if (ended_at_ || by_whom_) return;
  // slurmctld may have lost a job whose ranks go on; they are heard, and its nodes end them when they find out.
  if (is_heard(now) || recently_deaf(now)) return;
  // One that was asked for before sbatch returned says nothing.
  if (!explained_ && asked_at >= since_) ask_history(now);
  if (missing_listings_ < kMissingListings || now - *missing_since_ < kMissingFor) return;
  slurm_over_ = true;
  ended_at_ = now;
  end_cause_ = core::Cause::kControllerLost;
  end_reason_ = "Slurm has no trace of it any more";
}

void AttemptFollower::stop(const StopRequest& how, core::Millis now) {
  const auto deadline = now + how.grace;
  if (!stop_ || deadline < stop_at_) stop_at_ = deadline;
  if (!stop_) stop_ = how;
  explained_ = true;
  release_exits();
  wants_listing_ = true;
}

void AttemptFollower::tick(core::Millis now) {
  if ((unseen_ || by_whom_) && now - history_since_.value_or(now) >= kHistoryPatience) remembered(nullptr, now);
  if (save_at_ && now >= *save_at_) {
    explain(core::Cause::kTimedOut, "Slurm's time limit of " + core::duration_text(limit_) + " is near");
  }
  tell_nodes(now);
  release_settled(now);
  if (all_told() && !core_over_) {
    core_over_ = true;
    core_over_at_ = now;
  }
  if (core_over_) return;
  const auto waits_since = std::max(ended_at_.value_or(now), deaf_until_.value_or(core::Millis(0)));
  if (ended_at_ && files_read_ > ended_at_ && now - waits_since >= kFilePatience) return give_up(now);
  if (!stop_ || now < std::min(stop_at_, since_ + kLostAfter)) return;
  // What is being stopped and is not heard any more is given up: it is fenced, and Slurm may take minutes to say so.
  const bool lost =
      started_ && std::ranges::all_of(ranks_, [&](const Rank& rank) {
        return rank.told || (now - since_ >= kLostAfter && !recently_deaf(now) && !heard_within(rank, kLostAfter, now));
      });
  if (lost) {
    end_cause_ = core::Cause::kNodeFailed;
    end_reason_ = "its last ranks can't be heard any more";
    give_up(now);
  }
}

void AttemptFollower::give_up(core::Millis now) {
  if (core_over_) return;
  const bool forgotten = ended_well_ && !explained_ && (outlived() || (second_run_ && wants_script_word()));
  if (forgotten) {
    end_cause_ = core::Cause::kRequeued;
    end_reason_ = kForgottenBySlurm;
  } else {
    tell_ends_without_a_word(now);
  }
  // srun alone starts ranks, and fails where none comes to life.
  if (wants_script_word() && !forgotten) {
    end_reason_ = "its setup lines ended the script before any rank was started (" + end_reason_ + ")";
  }
  if (!all_told()) facts_.emplace_back(core::AttemptGone{what_.key.number, end_cause_, end_reason_});
  core_over_ = true;
  core_over_at_ = now;
}

bool AttemptFollower::wants_script_word() const {
  return ended_well_ && !core_over_ &&
         std::ranges::none_of(ranks_, [](const Rank& rank) { return rank.report.has_value(); });
}

// The batch script left with 0 and a rank is heard: what ended was a second run, which left at once.
bool AttemptFollower::outlived() const {
  return std::ranges::any_of(
      ranks_, [&](const Rank& rank) { return !rank.exited_at && ended_at_ && rank.heard_at > ended_at_; });
}

// The job is over and nothing was done to it; a rank that ran and never told its end is what the others failed with.
void AttemptFollower::tell_ends_without_a_word(core::Millis now) {
  if (!ended_at_ || explained_ ||
      std::ranges::none_of(ranks_, [](const Rank& rank) { return rank.exited_at.has_value(); }))
    return;
  for (auto& rank : ranks_) {
    if (rank.told || rank.exited_at || !rank.report) continue;
    rank.exited_at = now;
    rank.report->process = Process::kExited;
    rank.report->exit = {0, SIGKILL};
    rank.report->trouble = "the muster-task beside it ended without a word";
  }
  release_exits();
}

void AttemptFollower::explain(core::Cause cause, const std::string& reason, bool save) {
  if (explained_) return;
  explained_ = true;
  // One that never started has nothing to stop: its end says it all.
  if (started_ || std::ranges::any_of(ranks_, [](const Rank& rank) { return rank.report.has_value(); })) {
    facts_.emplace_back(core::AttemptStopping{what_.key.number, cause, reason, save});
  }
  release_exits();
}

void AttemptFollower::release_exits() {
  std::vector<core::RankNumber> held;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].exited_at && !ranks_[i].told) held.push_back(static_cast<core::RankNumber>(i));
  }
  tell_exits(std::move(held));
}

void AttemptFollower::release_settled(core::Millis now) {
  if (by_whom_) return;
  for (auto& rank : ranks_) {
    if (rank.exited_at && !rank.cleared && now - *rank.exited_at >= kHoldUnanswered) give_up_explaining(rank);
  }
  // One of which nobody hears may be what the others failed with; how Slurm's own end of it goes tells.
  const bool may_be_told = !waits_for_slurm() && !ended_at_;
  const auto most = ending_since_ ? kHoldWhileEnding : kHoldMost;
  std::vector<core::RankNumber> settled;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const auto& rank = ranks_[i];
    if (!rank.exited_at || rank.told) continue;
    const auto number = static_cast<core::RankNumber>(i);
    if (is_settled(number) || (may_be_told && now - *rank.exited_at >= most)) settled.push_back(number);
  }
  tell_exits(std::move(settled));
}

// Slurm has answered, and its answer explains nothing. It may take all of KillWait to come to its last word, and
// accounting may have the last one.
void AttemptFollower::leave_unexplained(core::Millis asked_at, core::Millis now) {
  const bool accounting_may_tell = wants_history() && now - *history_since_ < kHistoryPatience;
  if (unseen_ || by_whom_ || accounting_may_tell) return;
  const auto most = ending_since_ ? kHoldWhileEnding : kHoldMost;
  for (auto& rank : ranks_) {
    const bool asked_after = rank.exited_at && asked_at > *rank.exited_at;
    if (asked_after && !rank.cleared && now - *rank.exited_at >= most) give_up_explaining(rank);
  }
}

void AttemptFollower::give_up_explaining(Rank& rank) {
  rank.cleared = true;
  if (!rank.told && has_signal(*rank.report, SIGTERM)) {
    explain(core::Cause::kPreempted, kToldToLeaveUnexplained, false);
  }
}

bool AttemptFollower::waits_for_slurm() const {
  return std::ranges::any_of(ranks_, [](const Rank& rank) { return rank.exited_at && !rank.told && !rank.cleared; });
}

// Nothing that may still come to light would explain it better.
bool AttemptFollower::is_settled(core::RankNumber number) const {
  const auto& rank = ranks_[number];
  if (!rank.cleared) return false;
  if (speaks_for_itself(*rank.report)) return true;
  return std::ranges::all_of(ranks_, [&](const Rank& other) {
    if (&other == &rank || other.told) return true;
    return other.exited_at ? other.cleared : other.heard_at && *other.heard_at > *rank.exited_at + kLateWord;
  });
}

// [Note: who failed first] A rank that fails takes the others with it: their collectives break, a moment later, and
// they end with a plain 1 as it may have done itself. What is known of several ends, best first:
// - A signal is nobody's consequence: its rank is told first.
// - muster-worker says that it leaves before it does, while its connections still stand: the order of those words is
//   the order of causes, as long as every rank has come to say it.
// - The task beside a rank knows when its program ended, by its node's clock: milliseconds apart, so clocks must agree.
//   Whether they do shows in how long the words took to arrive.
// - The order in which the ends were heard of. Two tasks may have needed the disk for unlike times.
// Local supervisors see their ranks' ends in the kernel's order. What no rank says and no clock tells apart is not
// known.
void AttemptFollower::tell_exits(std::vector<core::RankNumber> ranks) {
  const auto order = order_of(ranks);
  std::ranges::stable_sort(ranks, [&](core::RankNumber a, core::RankNumber b) {
    const bool a_signalled = ranks_[a].report->exit.signal != 0, b_signalled = ranks_[b].report->exit.signal != 0;
    return a_signalled != b_signalled ? a_signalled : order(ranks_[a]) < order(ranks_[b]);
  });
  for (const auto rank : ranks) tell_exit(rank);
}

// One measure for all of them, or there would be circles.
std::function<core::Millis(const AttemptFollower::Rank&)> AttemptFollower::order_of(
    const std::vector<core::RankNumber>& numbers) const {
  bool all_said = true, all_timed = true;
  std::optional<core::Millis> quickest, slowest;
  for (const auto number : numbers) {
    const auto& rank = ranks_[number];
    if (rank.report->exit.signal != 0) continue;
    all_said = all_said && rank.failing;
    all_timed = all_timed && rank.report->ended_at > core::Millis(0);
    if (rank.from_file) continue;
    const auto took = rank.exited_at.value_or(core::Millis(0)) - rank.report->ended_at;
    quickest = std::min(quickest.value_or(took), took);
    slowest = std::max(slowest.value_or(took), took);
  }
  if (all_said) return [](const Rank& rank) { return core::Millis(rank.failing.value_or(0)); };
  const bool agree = !quickest || *slowest - *quickest <= kClocksAgree;
  if (all_timed && agree) return [](const Rank& rank) { return rank.report->ended_at; };
  return [](const Rank& rank) { return rank.exited_at.value_or(core::Millis(0)); };
}

void AttemptFollower::tell_exit(core::RankNumber number) {
  auto& rank = ranks_[number];
  if (rank.told || !rank.report || !has_ended(*rank.report)) return;
  rank.told = true;
  auto exit = rank.report->exit;
  if (rank.report->process == Process::kStepLost && exit.code == 0 && exit.signal == 0) exit.signal = SIGKILL;
  facts_.emplace_back(core::RankExited{what_.key.number, number, exit, rank.report->out_of_memory, rank.report->trouble,
                                       rank.report->error});
}

std::vector<core::EventBody> AttemptFollower::take_facts() {
  return std::exchange(facts_, {});
}

bool AttemptFollower::every_rank_started() const {
  return std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.report.has_value(); });
}

bool AttemptFollower::all_told() const {
  return std::ranges::all_of(ranks_, [](const Rank& rank) { return rank.told; });
}

bool AttemptFollower::had_started(core::Millis asked_at) const {
  return started_by_ && *started_by_ < asked_at && !ended_at_ && !leftover_ && !core_over_;
}

bool AttemptFollower::is_heard(core::Millis now) const {
  return std::ranges::any_of(ranks_,
                             [&](const Rank& rank) { return !rank.told && heard_within(rank, kLostAfter, now); });
}

std::string AttemptFollower::node_of_missed(core::RankNumber number, core::Millis now) const {
  if (number >= ranks_.size() || number >= nodes_.size() || core_over_) return {};
  const auto& rank = ranks_[number];
  const bool missed = now - rank.heard_at.value_or(since_) >= kHeardWithin;
  return missed && !rank.exited_at ? nodes_[number] : std::string();
}

bool AttemptFollower::hears_on(const std::string& node, core::Millis now) const {
  for (std::size_t i = 0; i < ranks_.size() && i < nodes_.size(); ++i) {
    if (nodes_[i] == node && heard_within(ranks_[i], kHeardWithin, now)) return true;
  }
  return false;
}

bool AttemptFollower::never_heard() const {
  return std::ranges::none_of(ranks_, [](const Rank& rank) { return rank.heard_at || rank.exited_at || rank.told; });
}

bool AttemptFollower::heard_within(const Rank& rank, core::Millis limit, core::Millis now) const {
  return rank.heard_at && now - *rank.heard_at < limit;
}

bool AttemptFollower::wants_files(core::Millis now) const {
  if (core_over_) return false;
  if (ended_at_ || (missing_since_ && now - *missing_since_ > core::Millis(0))) return true;
  // While nobody listened one may have ended and its task spoken to nobody, whatever the others do.
  return started_ && std::ranges::any_of(ranks_, [](const Rank& rank) { return !rank.heard_at && !rank.exited_at; });
}

bool AttemptFollower::wants_cancel(core::Millis now) const {
  if (slurm_over_ || (cancel_sent_at_ && now - *cancel_sent_at_ < kCancelAgain)) return false;
  if (leftover_) return true;
  if (stop_ && (!started_ || now >= stop_at_)) return true;
  return core_over_ && (stop_ || explained_ || now - core_over_at_.value_or(now) >= kTeardownMost);
}

bool AttemptFollower::has_fallen_silent(core::RankNumber number, core::Millis now) const {
  if (number >= ranks_.size()) return false;
  const auto& rank = ranks_[number];
  return rank.heard_at && !rank.exited_at && !heard_within(rank, kHeardWithin, now);
}

Vouch AttemptFollower::vouch(core::RankNumber number, core::Millis now) const {
  if (number >= ranks_.size()) return Vouch::kUnknown;
  const auto& rank = ranks_[number];
  // Its task has left with it. Its end may have to wait for Slurm's word, as long as its peers take to save.
  if (rank.exited_at) return rank.told ? Vouch::kGone : Vouch::kEnded;
  // A word of before it was stopped with its task is no news.
  const bool runs = rank.report && rank.report->process == Process::kRunning && heard_within(rank, kHeardWithin, now);
  if (!runs && (suspended_ || (woken_at_ && now - *woken_at_ < kWakesWithin))) return Vouch::kSuspended;
  if (!rank.report || !heard_within(rank, kHeardWithin, now)) {
    // Killed with its task, it seems: why will be told with Slurm's last word.
    const bool ending = ended_at_ || by_whom_ || (ending_since_ && now - *ending_since_ < kHoldWhileEnding);
    const bool leaving = rank.asked_to_leave_at && *rank.asked_to_leave_at >= answered_.value_or(core::Millis(0)) &&
                         now - *rank.asked_to_leave_at < kHoldUnanswered;
    return ending || leaving ? Vouch::kEnded : Vouch::kUnknown;
  }
  switch (rank.report->process) {
    case Process::kStarting:
    case Process::kRunning:
      return Vouch::kAlive;
    case Process::kStopped:
      return Vouch::kStopped;
    default:
      return Vouch::kGone;
  }
}

}  // namespace runtime::on_slurm
