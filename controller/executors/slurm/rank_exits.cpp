#include "controller/executors/slurm/rank_exits.h"

#include <signal.h>

#include <algorithm>

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

void RankExits::clear_before(core::Millis asked_at) {
  for (auto& rank : ranks_) rank.cleared = rank.cleared || (rank.exited_at && *rank.exited_at < asked_at);
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

std::vector<core::EventBody> RankExits::take_held(core::AttemptNumber attempt) {
  return take(attempt, [](core::RankNumber) { return true; });
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

}  // namespace executors::on_slurm
