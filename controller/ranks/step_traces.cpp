#include "controller/ranks/step_traces.h"

#include <algorithm>

#include "base/words.h"

namespace ranks {
namespace {

/// A rank sends shorter ones.
constexpr std::size_t kMostProblem = 2000;
constexpr int kMostWritten = 1000;

}  // namespace

muster::v1::TraceWish wire(const TraceWish& wish) {
  muster::v1::TraceWish out;
  out.set_number(wish.number);
  out.set_first_step(wish.first);
  out.set_steps(wish.steps);
  return out;
}

bool StepTrace::is_over() const {
  return std::ranges::all_of(ranks, &TracedRank::is_over);
}

bool StepTraces::said(core::RankNumber rank, const muster::v1::TraceReport* report) {
  if (rank >= ranks_) return false;
  if (able_.empty()) able_.resize(ranks_, Able::kUnknown);
  able_[rank] = report != nullptr ? Able::kYes : Able::kNo;
  if (report == nullptr) return give_up(rank);
  if (report->number() == 0) return false;
  auto place = std::ranges::find(traces_, report->number(), [](const StepTrace& trace) { return trace.wish.number; });
  StepTrace& trace = place != traces_.end() ? *place : add({report->number(), 0, report->steps()}, "");
  // A rank is at one trace at a time, so those before are behind it.
  for (auto& earlier : traces_) {
    auto& its = earlier.ranks[rank];
    if (&earlier == &trace || !its.has_spoken || its.is_over) continue;
    its.is_over = true;
    its.problem = "the rank has gone on to another trace before it told of all files of this one; look into the folder";
  }
  trace.first = report->first_step();
  auto& its = trace.ranks[rank];
  its.has_spoken = true;
  its.is_over = report->over();
  // The cut may leave half a character, which protobuf does not send.
  its.problem = base::valid_utf8(report->problem().substr(0, kMostProblem));
  const int written = std::min(report->steps_written_size(), kMostWritten);
  its.steps_written.assign(report->steps_written().begin(), report->steps_written().begin() + written);
  return true;
}

// Every trace that waits for this rank would wait for ever.
bool StepTraces::give_up(core::RankNumber rank) {
  bool news = false;
  for (auto& trace : traces_) {
    auto& its = trace.ranks[rank];
    if (its.is_over) continue;
    its.is_over = news = true;
    its.problem = "its muster-worker cannot record steps on request; install the muster-worker of this musterd";
  }
  return news;
}

std::optional<TraceWish> StepTraces::wish_for(core::RankNumber rank) const {
  if (rank >= ranks_) return std::nullopt;
  for (const auto& trace : traces_) {
    const auto& its = trace.ranks[rank];
    if (!its.has_spoken && !its.is_over) return trace.wish;
  }
  return std::nullopt;
}

void StepTraces::ask(const TraceWish& wish, const std::string& user) {
  if (find(wish.number) == nullptr) add(wish, user);
}

StepTrace& StepTraces::add(const TraceWish& wish, const std::string& user) {
  if (traces_.size() == kKept) traces_.pop_front();
  traces_.push_back({wish, user, 0, std::vector<TracedRank>(ranks_)});
  return traces_.back();
}

const StepTrace* StepTraces::find(std::uint64_t number) const {
  const auto place = std::ranges::find(traces_, number, [](const StepTrace& trace) { return trace.wish.number; });
  return place == traces_.end() ? nullptr : &*place;
}

const StepTrace* StepTraces::under_way() const {
  const auto place = std::ranges::find_if(traces_, [](const StepTrace& trace) { return !trace.is_over(); });
  return place == traces_.end() ? nullptr : &*place;
}

std::optional<core::RankNumber> StepTraces::unable() const {
  const auto place = std::ranges::find(able_, Able::kNo);
  if (place == able_.end()) return std::nullopt;
  return static_cast<core::RankNumber>(place - able_.begin());
}

}  // namespace ranks
