#include "controller/executors/slurm/slurm_attempt.h"

#include <signal.h>

#include "controller/core/core_text.h"
#include "slurm/host_list.h"

namespace executors::on_slurm {
namespace {

using Process = TaskReport::Process;
using Rank = RankExits::Rank;

/// True if something outside may have ended the rank.
bool may_be_slurms(const TaskReport& report) {
  if (!report.signals_seen.empty() || report.exit.code == core::kExitRequeue) return true;
  return report.exit.signal == SIGTERM || report.exit.signal == SIGKILL || report.exit.signal == SIGINT;
}

/// True if the exit says why the rank ended: no other rank's end can be the cause.
bool speaks_for_itself(const TaskReport& report) {
  if (report.out_of_memory || !report.trouble.empty()) return true;
  if (report.exit.signal != 0) return false;
  return report.exit.code == 0 || report.exit.code == core::kExitNeverRequeue ||
         report.exit.code == core::kExitOutOfMemory;
}

using By = Verdict::By;
using core::Cause;
using ::slurm::JobPhase;

constexpr const char* kToldToLeave = "told to leave in Slurm (SIGTERM), which would start it again for its exit code";
constexpr const char* kToldToLeaveUnexplained = "told to leave (SIGTERM), and Slurm did not say why";

}  // namespace

bool has_signal(const TaskReport& report, int number) {
  return std::ranges::find(report.signals_seen, number) != report.signals_seen.end();
}

RankExits::News RankExits::hear(core::RankNumber number, const TaskReport& report, core::Millis now) {
  auto& rank = ranks_[number];
  rank.heard_at = now;
  if (rank.told || rank.exited_at) return {};
  News news{.is_news = true};
  news.signal =
      !report.signals_seen.empty() && (!rank.report || rank.report->signals_seen.size() != report.signals_seen.size());
  news.exit = has_ended(report);
  rank.report = report;
  if (has_signal(report, SIGTERM) && !rank.asked_to_leave_at) rank.asked_to_leave_at = now;
  if (!news.exit) return news;
  rank.exited_at = now;
  rank.cleared = !may_be_slurms(report);
  return news;
}

RankExits::News RankExits::read(core::RankNumber number, const TaskReport& report, core::Millis now) {
  auto& rank = ranks_[number];
  const auto heard_at = rank.heard_at;
  rank.from_file = true;
  const auto news = hear(number, report, now);
  rank.heard_at = heard_at;
  return news;
}

void RankExits::failing(core::RankNumber number) {
  if (number < ranks_.size() && !ranks_[number].failing) ranks_[number].failing = ++failing_;
}

bool RankExits::clear_held_for(core::Millis most, core::Millis now, std::optional<core::Millis> asked_at) {
  bool was_told_to_leave = false;
  for (auto& rank : ranks_) {
    if (!rank.is_held() || rank.cleared || now - *rank.exited_at < most) continue;
    if (asked_at && *asked_at <= *rank.exited_at) continue;
    rank.cleared = true;
    was_told_to_leave = was_told_to_leave || has_signal(*rank.report, SIGTERM);
  }
  return was_told_to_leave;
}

void RankExits::end_the_silent(core::Millis now) {
  for (auto& rank : ranks_) {
    if (rank.told || rank.exited_at || !rank.report) continue;
    rank.exited_at = now;
    rank.report->process = Process::kExited;
    rank.report->exit = {0, SIGKILL};
    rank.report->trouble = "the muster-agent beside it ended without a word";
  }
}

std::vector<core::EventBody> RankExits::take_settled(core::AttemptNumber attempt, std::optional<core::Millis> most,
                                                     core::Millis now) {
  return take(attempt, [&](core::RankNumber rank) {
    return is_settled(rank) || (most && now - *ranks_[rank].exited_at >= *most);
  });
}

// Nothing that is still to come would explain the exit better.
bool RankExits::is_settled(core::RankNumber number) const {
  const auto& rank = ranks_[number];
  if (!rank.cleared) return false;
  if (speaks_for_itself(*rank.report)) return true;
  return std::ranges::all_of(ranks_, [&](const Rank& other) {
    if (&other == &rank || other.told) return true;
    return other.exited_at ? other.cleared : other.heard_at && *other.heard_at > *rank.exited_at + kLateWord;
  });
}

// [Note: who failed first] A rank that fails takes the others with it. Their collectives break a moment later, and they
// end with a plain 1, as the first rank may have done itself. Four things tell the order of several ends, best first:
// - A signal is no consequence of another end. A rank that ended by a signal is told first.
// - muster-worker says that it leaves before it does, while its connections still stand. The order of these words is
//   the order of causes, if every rank has come to say it.
// - The task beside a rank knows when the program ended, by its node's clock. The ends are milliseconds apart, so the
//   clocks must agree. The time that the words took to arrive shows whether the clocks agree.
// - The order in which the ends were heard of. Two tasks may have needed the disk for unlike times.
// An agent of all ranks sees the ends of its ranks in the kernel's order. An order that no rank says and no clock tells
// is not known.
std::vector<core::EventBody> RankExits::take(core::AttemptNumber attempt,
                                             const std::function<bool(core::RankNumber)>& may_be_told) {
  std::vector<core::RankNumber> ranks;
  for (core::RankNumber rank = 0; rank < size(); ++rank) {
    if (ranks_[rank].is_held() && may_be_told(rank)) ranks.push_back(rank);
  }
  const auto order = order_of(ranks);
  std::ranges::stable_sort(ranks, [&](core::RankNumber a, core::RankNumber b) {
    const bool a_signalled = ranks_[a].report->exit.signal != 0, b_signalled = ranks_[b].report->exit.signal != 0;
    return a_signalled != b_signalled ? a_signalled : order(ranks_[a]) < order(ranks_[b]);
  });
  std::vector<core::EventBody> facts;
  for (const auto number : ranks) {
    auto& rank = ranks_[number];
    rank.told = true;
    const auto& report = *rank.report;
    auto exit = report.exit;
    if (report.process == Process::kStepLost && exit == core::ExitStatus{}) exit.signal = SIGKILL;
    facts.emplace_back(core::RankExited{attempt, number, exit, report.out_of_memory, report.trouble, report.error});
  }
  return facts;
}

// One measure for all ranks: two measures could contradict each other.
std::function<core::Millis(const Rank&)> RankExits::order_of(const std::vector<core::RankNumber>& numbers) const {
  bool all_said = true, all_timed = true;
  std::optional<core::Millis> quickest, slowest;
  for (const auto number : numbers) {
    const auto& rank = ranks_[number];
    if (rank.report->exit.signal != 0) continue;
    all_said = all_said && rank.failing;
    all_timed = all_timed && rank.report->ended_at > core::Millis(0);
    if (rank.from_file) continue;
    const auto took = *rank.exited_at - rank.report->ended_at;
    quickest = std::min(quickest.value_or(took), took);
    slowest = std::max(slowest.value_or(took), took);
  }
  if (all_said) return [](const Rank& rank) { return core::Millis(rank.failing.value_or(0)); };
  const bool agree = !quickest || *slowest - *quickest <= kClocksAgree;
  if (all_timed && agree) return [](const Rank& rank) { return rank.report->ended_at; };
  return [](const Rank& rank) { return *rank.exited_at; };
}

bool RankExits::was_told_to_leave() const {
  return any([](const Rank& rank) { return rank.exited_at && has_signal(*rank.report, SIGTERM); });
}

SlurmAttempt::SlurmAttempt(Followed what, core::Millis now)
    : what_(std::move(what)),
      since_(now),
      side_(what_.started ? SlurmSide(Running()) : SlurmSide(Queued())),
      ranks_(what_.world_size),
      begun_(what_.started),
      explained_(what_.draining),
      begun_by_(what_.started ? std::optional(now - core::Millis(1)) : std::nullopt) {}

void SlurmAttempt::observe(const Observation& seen) {
  wants_listing_ = false;
  answered_ = seen.asked_at;
  seen.job == nullptr ? missing(seen) : listed(seen);
  leave_unexplained(seen.asked_at, seen.now);
}

void SlurmAttempt::listed(const Observation& seen) {
  const auto& job = *seen.job;
  const auto phase = ::slurm::classify(job.state.state);
  preempted_ = preempted_ || job.preempted;
  const Evidence evidence{job, nodes_, seen.down, preempted_, begun_, ranks_.all_begun()};
  if (is_run_again(evidence)) return run_again(explain(evidence), phase, seen);
  if (phase == JobPhase::kEnded) in_slurm_ = InSlurm::kNothing;
  const auto before = newest_listed(side_);
  if (!before && !(is<Cancelled>() && phase == JobPhase::kEnded)) return;
  // A run may have gone from its start to its end while nobody followed it. Nodes may take minutes to boot.
  const bool has_nodes = phase == JobPhase::kActive && job.state.state != ::slurm::JobState::kConfiguring;
  if (has_nodes || (phase == JobPhase::kEnded && !job.node_list.empty())) tell_start(job.node_list);
  const auto why = explain(evidence);
  if (phase == JobPhase::kEnded) {
    if (!why.accounting_next || explained_ || accounting_answered_) return conclude(why, seen.now);
    const auto* cancelled = std::get_if<Cancelled>(&side_);
    side_ = Cancelled{job, cancelled != nullptr ? cancelled->asked_accounting_at : seen.now};
    return;
  }
  side_ = std::visit([](auto state) { return SlurmSide(state); }, next(*before, seen, what_.stop_grace));
  if (why.by == By::kSlurm) tell_why(why.cause, why.reason, why.save);
  if (phase == JobPhase::kActive) {
    // Slurm ends nothing: ranks that have exited did so by themselves.
    ranks_.clear_before(seen.asked_at);
    settle(seen.now);
  }
  if (phase == JobPhase::kEnding) wants_listing_ = !explained_;
}

// While the first run is still ending (COMPLETING) its ranks may be saving.
void SlurmAttempt::run_again(const Verdict& why, JobPhase phase, const Observation& seen) {
  const auto* asked = std::get_if<Requeued>(&side_);
  if (phase == JobPhase::kEnding) {
    if (asked != nullptr) return;
    if (const auto before = newest_listed(side_)) side_ = Ending{ending_since().value_or(seen.now)};
    tell_why(why.cause, why.reason, why.save);
    wants_listing_ = !ranks_.all_told();
    return;
  }
  in_slurm_ = phase == JobPhase::kEnded ? InSlurm::kNothing : InSlurm::kSecondRun;
  if (requeued_for_its_exit()) return;
  if (!why.accounting_next || explained_ || is<Ended>() || accounting_answered_) return conclude(why, seen.now);
  side_ = Requeued{asked != nullptr ? asked->asked_accounting_at : seen.now};
}

void SlurmAttempt::missing(const Observation& seen) {
  if (ended_at_) in_slurm_ = InSlurm::kNothing;
  if (!newest_listed(side_)) return;
  auto missing = next_missing(side_, seen.now);
  // slurmctld may have lost a job whose ranks go on. They are heard, and their nodes end them when they find out.
  const bool may_go_on = is_heard(seen.now) || recently_deaf(seen.now);
  // A listing that was asked for before sbatch returned says nothing.
  const bool may_ask = !may_go_on && !explained_ && seen.asked_at >= since_;
  if (may_ask && !missing.asked_accounting_at) missing.asked_accounting_at = seen.now;
  const bool is_lost = !may_go_on && missing.listings >= kMissingListings && seen.now - missing.since >= kMissingFor;
  side_ = missing;
  if (!is_lost) return;
  in_slurm_ = InSlurm::kNothing;
  side_ = Ended{{By::kNobody, Cause::kControllerLost, "Slurm has no trace of it any more"}, seen.now};
}

void SlurmAttempt::remembered(const ::slurm::PastRun* run, core::Millis now) {
  if (!wants_history()) return;
  accounting_answered_ = true;
  if (is<Requeued>()) return conclude(explain(run == nullptr ? ::slurm::PastRun() : *run, true, nodes_), now);
  if (const auto* asked = std::get_if<Cancelled>(&side_)) {
    auto job = asked->job;
    if (run != nullptr && cause_of(run->state.state) == Cause::kCancelled) job.state.by = run->state.by;
    return conclude(explain({.job = job, .nodes = nodes_, .down = {}, .preempted = preempted_}), now);
  }
  // Missing.
  if (run == nullptr || explained_) return;
  in_slurm_ = InSlurm::kNothing;
  const bool requeued = run->state.state == ::slurm::JobState::kRequeued;
  if (!requeued && !run->node_list.empty()) tell_start(run->node_list);
  conclude(explain(*run, false, nodes_), now);
}

void SlurmAttempt::conclude(const Verdict& why, core::Millis now) {
  if (why.by == By::kSlurm) tell_why(why.cause, why.reason, why.save);
  begun_ = begun_ || why.run_again;
  if (auto* ended = std::get_if<Ended>(&side_)) {
    if (ended->why.by == By::kNobody) ended->why = why;  // the job was lost, and is listed again
    ended->why.run_again = ended->why.run_again || why.run_again;
  } else {
    side_ = Ended{why, now};
    if (!was_begun()) give_up_ended(now);  // there are no ranks to wait for
  }
  ranks_.clear_all();
  if (requeued_for_its_exit() && ranks_.was_told_to_leave()) tell_why(Cause::kPreempted, kToldToLeave, false);
  settle(now);
}

bool SlurmAttempt::task(core::RankNumber number, const TaskReport& report, core::Millis now) {
  if (number >= ranks_.size()) return false;
  const bool is_same = ranks_[number].report == report;
  heard(number, ranks_.hear(number, report, now), now);
  return !is_same;
}

void SlurmAttempt::file(core::RankNumber number, const TaskReport* report, core::Millis now) {
  if (number >= ranks_.size() || ranks_[number].told || report == nullptr || !has_ended(*report)) return;
  if (!ranks_[number].exited_at) heard(number, ranks_.read(number, *report, now), now);
  if (!is<Ended>() || ranks_[number].told) return;
  ranks_.clear(number);
  settle(now);
}

void SlurmAttempt::heard(core::RankNumber number, RankExits::News news, core::Millis now) {
  begun_by_ = std::min(begun_by_.value_or(now), now);
  if (!news.is_news) return;
  const auto& rank = ranks_[number];
  const auto& report = *rank.report;
  if (number < nodes_.size() && !report.node.empty() && nodes_[number] != report.node) {
    nodes_[number] = report.node;
    moved_since_ = moved_since_.value_or(now);
  }
  if (report.process == Process::kStepLost) {
    tell_why(Cause::kNodeFailed,
             "rank " + std::to_string(number) + (report.node.empty() ? "" : " on " + report.node) +
                 " lost its slurmstepd, and was ended with it",
             false);
  }
  // Only muster's own --signal sends SIGUSR2.
  if (has_signal(report, SIGUSR2)) tell_why(Cause::kTimedOut, "the time limit is near", true);
  if (news.exit && requeued_for_its_exit() && has_signal(report, SIGTERM)) {
    tell_why(Cause::kPreempted, kToldToLeave, false);
  }
  // It runs before any listing has said so.
  const bool starts = !begun_ && !ended_at_;
  wants_listing_ = wants_listing_ || starts || news.signal || (news.exit && !explained_ && !rank.cleared);
  if (explained_) tell_exits(ranks_.take_held(what_.key.number));
  if (news.exit) settle(now);
}

void SlurmAttempt::stop(const StopRequest& how, core::Millis now) {
  stop_at_ = std::min(stop_at_.value_or(core::Millis::max()), now + how.grace);
  explained_ = true;
  tell_exits(ranks_.take_held(what_.key.number));
  wants_listing_ = true;
}

void SlurmAttempt::tick(core::Millis now) {
  const bool waits_for_accounting = is<Requeued>() || is<Cancelled>();
  if (waits_for_accounting && now - *asked_accounting_at() >= kHistoryPatience) remembered(nullptr, now);
  if (const auto* running = std::get_if<Running>(&side_); running && running->limit && now >= running->limit->save_at) {
    tell_why(Cause::kTimedOut, "Slurm's time limit of " + core::duration_text(running->limit->limit) + " is near",
             true);
  }
  tell_nodes(now);
  settle(now);
  if (ended_at_) return;
  if (ranks_.all_told()) ended_at_ = now;
  if (ended_at_) return;
  if (const auto* ended = std::get_if<Ended>(&side_)) {
    const auto waits_since = std::max(ended->since, deaf_until_.value_or(core::Millis(0)));
    if (files_read_ > ended->since && now - waits_since >= kFilePatience) return give_up_ended(now);
  }
  if (!begun_ || !stop_at_ || now < std::min(*stop_at_, since_ + kLostAfter)) return;
  // Ranks that are being stopped and are not heard any more are given up: they are fenced, and Slurm may take minutes
  // to say that they are gone.
  const auto limit = patience(kLostAfter, now);
  const bool listened = now - since_ >= limit && !recently_deaf(now);
  const auto may_be_there = [&](const Rank& r) { return !r.told && !(listened && !r.heard_within(limit, now)); };
  if (ranks_.any(may_be_there)) return;
  give_up(Cause::kNodeFailed, "its last ranks can't be heard any more", now);
}

// The job is over, and nobody waits for a word of its ranks any longer.
void SlurmAttempt::give_up_ended(core::Millis now) {
  auto [cause, reason] = std::pair(std::get<Ended>(side_).why.cause, std::get<Ended>(side_).why.reason);
  const bool no_rank = wants_script_word();
  if (std::get<Ended>(side_).why.is_success && !explained_ && (outlived_its_end() || (second_run_left_ && no_rank))) {
    return give_up(Cause::kRequeued, kForgotten, now);
  }
  // Nothing was done to the job. A rank that ran and never told its end is what the others failed with.
  if (!explained_ && ranks_.any_exited()) {
    ranks_.end_the_silent(now);
    tell_exits(ranks_.take_held(what_.key.number));
  }
  // srun alone starts ranks, and fails where none comes to life.
  if (no_rank) reason = "its setup lines ended the script before any rank was started (" + reason + ")";
  give_up(cause, std::move(reason), now);
}

void SlurmAttempt::give_up(Cause cause, std::string reason, core::Millis now) {
  if (!ranks_.all_told()) facts_.emplace_back(core::AttemptGone{what_.key.number, cause, std::move(reason)});
  ended_at_ = now;
}

void SlurmAttempt::tell_start(const std::string& node_list) {
  if (answered_ && !begun_by_) begun_by_ = answered_;
  if (!nodes_.empty()) return;
  const auto hosts = ::slurm::expand_hosts(node_list);
  if (const auto* names = std::get_if<std::vector<std::string>>(&hosts)) {
    for (core::RankNumber r = 0; r < ranks_.size(); ++r) {
      const auto node = r / std::max<std::uint32_t>(1, what_.ranks_per_node);
      const auto& report = ranks_[r].report;
      const bool has_spoken = report && !report->node.empty();
      nodes_.push_back(has_spoken ? report->node : node < names->size() ? (*names)[node] : std::string());
    }
  }
  if (!std::exchange(begun_, true)) facts_.emplace_back(core::AttemptStarted{what_.key.number, nodes_});
}

// All at once: of a thousand ranks each would be an event.
void SlurmAttempt::tell_nodes(core::Millis now) {
  if (!moved_since_ || ended_at_) return;
  if (!ranks_.all_begun() && now - *moved_since_ < kHoldMost) return;
  moved_since_.reset();
  facts_.emplace_back(core::AttemptStarted{what_.key.number, nodes_, true});
}

// An attempt that never began has nothing to stop: its end says it all.
void SlurmAttempt::tell_why(Cause cause, const std::string& reason, bool save) {
  if (explained_) return;
  explained_ = true;
  if (was_begun()) facts_.emplace_back(core::AttemptStopping{what_.key.number, cause, reason, save});
  tell_exits(ranks_.take_held(what_.key.number));
}

void SlurmAttempt::tell_exits(std::vector<core::EventBody> exits) {
  std::ranges::move(exits, std::back_inserter(facts_));
}

void SlurmAttempt::settle(core::Millis now) {
  if (is<Cancelled>()) return;
  if (ranks_.clear_held_for(kHoldUnanswered, now)) tell_why(Cause::kPreempted, kToldToLeaveUnexplained, false);
  // A rank that is not heard may be what the others failed with. How Slurm ends the job tells that.
  const bool may_be_told = !ranks_.waits_for_slurm() && !is<Ended>();
  tell_exits(ranks_.take_settled(what_.key.number, may_be_told ? std::optional(hold_most()) : std::nullopt, now));
}

// Slurm has answered, and its answer explains nothing. Slurm may take all of KillWait to come to its last word, and
// accounting may have the last one.
void SlurmAttempt::leave_unexplained(core::Millis asked_at, core::Millis now) {
  if (is<Requeued>() || is<Cancelled>()) return;
  if (wants_history() && now - *asked_accounting_at() < kHistoryPatience) return;
  if (ranks_.clear_held_for(hold_most(), now, asked_at)) tell_why(Cause::kPreempted, kToldToLeaveUnexplained, false);
}

std::optional<core::Millis> SlurmAttempt::asked_accounting_at() const {
  if (const auto* missing = std::get_if<Missing>(&side_)) return missing->asked_accounting_at;
  if (const auto* requeued = std::get_if<Requeued>(&side_)) return requeued->asked_accounting_at;
  if (const auto* cancelled = std::get_if<Cancelled>(&side_)) return cancelled->asked_accounting_at;
  return std::nullopt;
}

std::optional<core::Millis> SlurmAttempt::ending_since() const {
  const auto listed = newest_listed(side_);
  const auto* ending = listed ? std::get_if<Ending>(&*listed) : nullptr;
  return ending != nullptr ? std::optional(ending->since) : std::nullopt;
}

// [Note: requeued for its exit code] in explain.cpp.
bool SlurmAttempt::requeued_for_its_exit() const {
  const auto* ended = std::get_if<Ended>(&side_);
  return ended != nullptr && ended->why.by == By::kRanks && ended->why.run_again;
}

// The batch script left with 0 and a rank is heard: the run that ended was a second run, which left at once.
bool SlurmAttempt::outlived_its_end() const {
  return ranks_.any([&](const Rank& r) { return !r.exited_at && r.heard_at > std::get<Ended>(side_).since; });
}

bool SlurmAttempt::is_heard(core::Millis now) const {
  return ranks_.any([&](const Rank& r) { return !r.told && r.heard_within(patience(kLostAfter, now), now); });
}

bool SlurmAttempt::is_at_rest(core::Millis now) const {
  if (!answered_ || explained_ || stop_at_ || ended_at_ || in_slurm_ != InSlurm::kRun) return false;
  if (is<Queued>()) return !ranks_.any_begun();
  return is<Running>() && !ranks_.any([&](const Rank& rank) {
    return !rank.told && (rank.exited_at || !rank.heard_within(patience(kHeardWithin, now), now));
  });
}

std::string SlurmAttempt::node_of_missed(core::RankNumber number, core::Millis now) const {
  if (number >= ranks_.size() || number >= nodes_.size() || ended_at_) return {};
  const auto& rank = ranks_[number];
  const bool missed = now - rank.heard_at.value_or(since_) >= patience(kHeardWithin, now);
  return missed && !rank.exited_at ? nodes_[number] : std::string();
}

bool SlurmAttempt::hears_on(const std::string& node, core::Millis now) const {
  for (core::RankNumber rank = 0; rank < ranks_.size() && rank < nodes_.size(); ++rank) {
    if (nodes_[rank] == node && ranks_[rank].heard_within(patience(kHeardWithin, now), now)) return true;
  }
  return false;
}

bool SlurmAttempt::wants_files(core::Millis now) const {
  if (ended_at_) return false;
  const auto* missing = std::get_if<Missing>(&side_);
  if (is<Ended>() || (missing != nullptr && now > missing->since)) return true;
  if (!begun_) return false;
  // While nobody listened a rank may have ended and its task spoken to nobody, whatever the other ranks do.
  return ranks_.any([](const Rank& r) { return !r.heard_at && !r.exited_at; });
}

bool SlurmAttempt::wants_cancel(core::Millis now) const {
  if (in_slurm_ == InSlurm::kNothing || (cancel_sent_at_ && now - *cancel_sent_at_ < kCancelAgain)) return false;
  if (in_slurm_ == InSlurm::kSecondRun) return true;
  if (stop_at_ && (!begun_ || now >= *stop_at_)) return true;
  return ended_at_ && (explained_ || now - *ended_at_ >= kTeardownMost);
}

bool SlurmAttempt::has_fallen_silent(core::RankNumber number, core::Millis now) const {
  if (number >= ranks_.size()) return false;
  const auto& rank = ranks_[number];
  return rank.heard_at && !rank.exited_at && !rank.heard_within(patience(kHeardWithin, now), now);
}

Vouch SlurmAttempt::vouch(core::RankNumber number, core::Millis now) const {
  if (number >= ranks_.size()) return Vouch::kUnknown;
  const auto& rank = ranks_[number];
  // The task has left with its rank. The exit may be held as long as the other ranks take to save.
  if (rank.exited_at) return rank.told ? Vouch::kGone : Vouch::kEnded;
  const bool is_heard = rank.report && rank.heard_within(patience(kHeardWithin, now), now);
  const auto listed = newest_listed(side_);
  const auto* running = listed ? std::get_if<Running>(&*listed) : nullptr;
  const bool wakes = running != nullptr && running->woken_at && now - *running->woken_at < kWakesWithin;
  const bool sleeps = (listed && std::holds_alternative<Suspended>(*listed)) || wakes;
  // A report that a task sent before it was stopped with its rank is no news.
  if (sleeps && !(is_heard && rank.report->process == Process::kRunning)) return Vouch::kSuspended;
  if (!is_heard) {
    // The rank was killed with its task, it seems. Slurm's last word will say why.
    const auto ending = ending_since();
    const bool ends = !listed || (ending && now - *ending < kHoldWhileEnding);
    const bool leaves = rank.asked_to_leave_at && *rank.asked_to_leave_at >= answered_.value_or(core::Millis(0)) &&
                        now - *rank.asked_to_leave_at < kHoldUnanswered;
    return ends || leaves ? Vouch::kEnded : Vouch::kUnknown;
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

}  // namespace executors::on_slurm
