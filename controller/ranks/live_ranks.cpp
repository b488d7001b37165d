#include "controller/ranks/live_ranks.h"

#include <cmath>

#include "base/words.h"

namespace ranks {
namespace {

/// A rank sends shorter ones.
constexpr std::size_t kMostProblem = 2000;
constexpr int kMostWritten = 1000;

/// An agent finds a new line of a report within two seconds. A stop takes a second from here to the rank's program.
constexpr core::Millis kPath{3000};

}  // namespace

muster::v1::TraceWish wire(const TraceWish& wish) {
  muster::v1::TraceWish out;
  out.set_number(wish.number);
  out.set_first_step(wish.first);
  out.set_steps(wish.steps);
  return out;
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

StepTrace& StepTraces::add(const TraceWish& wish, const std::string& user) {
  if (traces_.size() == kKept) traces_.pop_front();
  traces_.push_back({wish, user, 0, std::vector<TracedRank>(ranks_)});
  return traces_.back();
}

const StepTrace* StepTraces::find(std::uint64_t number) const {
  const auto place = std::ranges::find(traces_, number, [](const StepTrace& trace) { return trace.wish.number; });
  return place == traces_.end() ? nullptr : &*place;
}

std::optional<core::RankNumber> StepTraces::unable() const {
  const auto place = std::ranges::find(able_, Able::kNo);
  if (place == able_.end()) return std::nullopt;
  return static_cast<core::RankNumber>(place - able_.begin());
}

std::optional<core::Step> leave_step(std::span<const RankPace> ranks, core::Millis interval, core::Millis grace) {
  if (ranks.empty()) return std::nullopt;
  core::Step at = 0;
  for (const auto& rank : ranks) {
    if (rank.quickest_ms <= 0) return std::nullopt;
    const auto unseen = std::max(interval, rank.told_ago) + kPath;
    const auto steps = std::ceil(static_cast<double>(unseen.count()) / rank.quickest_ms) + 1;
    constexpr double kMost = 1e9;
    at = std::max(at, rank.step + static_cast<core::Step>(std::min(steps, kMost)));
  }
  const auto is_too_far = [&](const RankPace& rank) {
    return static_cast<double>(at - rank.step) * rank.slowest_ms > static_cast<double>(grace.count()) / 2;
  };
  return std::ranges::any_of(ranks, is_too_far) ? std::nullopt : std::optional(at);
}

namespace {

double median_of(std::vector<float> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (static_cast<double>(*middle) + *std::max_element(values.begin(), middle)) / 2;
}

/// Notes what the program says of itself. Bad lines and nothing else are no report.
void note_program(const muster::v1::HeartbeatRequest& request, RankView& view) {
  if (request.has_program()) view.program = std::make_shared<const muster::v1::ProgramWords>(request.program());
  const auto& words = request.program();
  const bool tells = !words.status().empty() || words.total_steps() > 0 || !words.config().empty() || words.has_error();
  view.reports = view.reports || tells || request.step() > 0 || request.metrics_size() > 0 ||
                 request.checkpoints_size() > 0 || request.has_resumed_from_step() || !request.section_name().empty() ||
                 request.section() != muster::v1::SECTION_INIT;
}

/// The rank leaves, or has made the last of the steps that its program has told of.
bool is_done(const muster::v1::HeartbeatRequest& request, const RankView& view) {
  const auto total = view.program == nullptr ? 0 : view.program->total_steps();
  return request.leaving() || request.section() == muster::v1::SECTION_DONE || (total > 0 && request.step() >= total);
}

/// One odd step changes the range at once, and the range forgets the step within some dozen others.
void note_pace(double step_ms, RankView& view) {
  constexpr double kForget = 1.05;
  if (!std::isfinite(step_ms) || step_ms <= 0) return;
  view.quickest_ms = view.quickest_ms > 0 ? std::min(step_ms, view.quickest_ms * kForget) : step_ms;
  view.slowest_ms = std::max(step_ms, view.slowest_ms / kForget);
}

}  // namespace

Stragglers::Stragglers(std::uint32_t ranks) : ranks_(ranks < kFewestRanks ? 0 : ranks) {}

void Stragglers::add(core::RankNumber rank, core::Step step, double step_ms) {
  if (rank >= ranks_.size() || step <= judged_ || !std::isfinite(step_ms) || step_ms <= 0) return;
  auto& waiting = waiting_[step];
  if (waiting.step_ms.empty()) waiting.step_ms.resize(ranks_.size());
  if (waiting.step_ms[rank] > 0) return;
  waiting.step_ms[rank] = static_cast<float>(step_ms);
  if (++waiting.reported == ranks_.size()) {
    judge(waiting.step_ms);
    judged_ = step;
    // Older steps were not reported by all ranks, and never will be: each rank reports its steps in order.
    waiting_.erase(waiting_.begin(), waiting_.upper_bound(step));
  } else if (waiting_.size() > 1 && (waiting_.size() > kMostWaiting || waiting_.size() * ranks_.size() > kMostTimes)) {
    waiting_.erase(waiting_.begin());
  }
}

void Stragglers::judge(const std::vector<float>& step_ms) {
  const double median = median_of(step_ms);
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const double ratio = step_ms[r] / median;
    if (ratio > kSlow) {
      ++ranks_[r].slow_steps;
      ranks_[r].ratios += ratio;
    } else {
      ranks_[r] = {};
    }
  }
}

void LiveRanks::track(const core::AttemptKey& key, const LivenessRules& rules, std::uint32_t world_size,
                      core::Millis now, core::Millis fresh_until) {
  std::lock_guard lock(mutex_);
  auto place = attempts_.find(key);
  const bool fresh = place == attempts_.end();
  if (fresh) {
    Live live{.watch = AttemptWatch(rules, world_size, key.number, now),
              .ranks = std::vector<RankView>(world_size),
              .stragglers = Stragglers(world_size),
              .traces = StepTraces(world_size)};
    // The attempt before did the same work.
    const auto before = key.number > 1 ? find({key.job, key.number - 1}) : nullptr;
    if (before != nullptr && before->ranks.size() == world_size) live.watch.set_limits(before->watch.limits());
    place = attempts_.emplace(key, std::move(live)).first;
  }
  // A rank may have spoken before its attempt was taken over; the others need their time all the same.
  if (fresh || fresh_until > now) place->second.watch.fresh_start(fresh_until);
}

void LiveRanks::follow(const core::Job& job, core::Millis now) {
  std::lock_guard lock(mutex_);
  for (auto place = attempts_.lower_bound({job.id, 0}); place != attempts_.end() && place->first.job == job.id;
       ++place) {
    const auto number = place->first.number;
    if (number > job.attempts.size()) {  // its launch is not in the history yet, or never will be
      if (core::is_ended(job.state)) end(place->first, place->second);
      continue;
    }
    const auto& attempt = job.attempts[number - 1];
    place->second.watch.follow(attempt, now);
    place->second.watch.set_time_limit(job.time_limit, attempt.queued_at.has_value());
    if (attempt.state == core::AttemptState::kEnded) end(place->first, place->second);
  }
  while (ended_.size() > kEndedKept) {
    attempts_.erase(ended_.front());
    ended_.pop_front();
  }
}

void LiveRanks::end(const core::AttemptKey& key, Live& live) {
  if (live.ended) return;
  live.ended = true;
  ended_.push_back(key);
}

bool LiveRanks::heartbeat(const core::AttemptKey& key, core::RankNumber rank,
                          const muster::v1::HeartbeatRequest& request, core::Millis now) {
  std::lock_guard lock(mutex_);
  auto* live = find(key);
  if (live == nullptr || rank >= live->ranks.size()) return false;
  auto& view = live->ranks[rank];
  view.has_left = view.has_left || request.leaving();
  view.blind = request.blind();
  if (live->ended) {
    // The rank's agent tells these words after the end of the program.
    note_program(request, view);
    return request.has_program();
  }
  auto section = section_name(request.section(), request.section_name());
  const bool moved = !view.heard_at || view.step != request.step() || view.section != section || request.has_program();
  note_program(request, view);
  live->watch.heard(rank, {request.step(), section, request.blind(), is_done(request, view)}, now);
  view.heard_at = now;
  view.section = std::move(section);
  view.step = request.step();
  note_pace(request.step_ms(), view);
  view.memory_bytes = request.memory_bytes();
  view.memory_peak_bytes = std::max(view.memory_peak_bytes, request.memory_peak_bytes());
  view.step_ms = request.step_ms();
  if (request.leaving()) view.leaving_reason = request.leaving_reason();
  return moved;
}

void LiveRanks::registered(const core::AttemptKey& key, core::RankNumber rank, core::Millis now,
                           const std::string& node, std::int64_t pid) {
  std::lock_guard lock(mutex_);
  auto* live = find(key);
  if (live == nullptr || live->ended || rank >= live->ranks.size()) return;
  auto& view = live->ranks[rank];
  live->watch.came(rank, now);
  view.heard_at = now;
  if (!node.empty()) view.node = node;
  if (pid != 0) view.pid = pid;
}

bool LiveRanks::used(const core::AttemptKey& key, core::RankNumber rank, const agent::protocol::RankUse& use,
                     core::Millis now) {
  const auto makes_sense = [](const std::optional<double>& value) {
    return !value || (std::isfinite(*value) && *value >= 0);
  };
  if (!makes_sense(use.cores) || !makes_sense(use.gpu_percent)) return false;
  std::lock_guard lock(mutex_);
  auto* live = find(key);
  if (live == nullptr || live->ended || rank >= live->ranks.size()) return false;
  auto& view = live->ranks[rank];
  if (view.use && view.use->at_ms == use.at_ms) return false;
  view.use = use;
  view.used_at = now;
  return true;
}

void LiveRanks::steps(const core::AttemptKey& key, const std::vector<store::MetricRow>& rows) {
  std::lock_guard lock(mutex_);
  auto* live = find(key);
  if (live == nullptr || live->ended) return;
  for (const auto& row : rows) {
    if (row.step_ms) live->stragglers.add(row.rank, row.step, *row.step_ms);
  }
}

void LiveRanks::set_durable_step(const core::AttemptKey& key, core::RankNumber rank, core::Step step) {
  std::lock_guard lock(mutex_);
  auto* live = find(key);
  if (live != nullptr && rank < live->ranks.size()) live->ranks[rank].durable_step = step;
}

std::optional<RankView> LiveRanks::view(const core::AttemptKey& key, core::RankNumber rank) const {
  std::lock_guard lock(mutex_);
  const auto* live = find(key);
  if (live == nullptr || rank >= live->ranks.size()) return std::nullopt;
  auto view = live->ranks[rank];
  view.slowness = live->stragglers.slowness(rank);
  return view;
}

std::optional<LeastProgress> LiveRanks::least_progress(const core::AttemptKey& key, core::Millis now) const {
  std::lock_guard lock(mutex_);
  const auto* live = find(key);
  return live == nullptr || live->ended ? std::nullopt : live->watch.least_progress(now);
}

std::optional<core::Step> LiveRanks::leave_step(const core::AttemptKey& key, core::Millis interval, core::Millis now) {
  std::lock_guard lock(mutex_);
  auto* live = find(key);
  if (live == nullptr) return std::nullopt;
  if (live->leave_step) return *live->leave_step;
  std::vector<RankPace> paces;
  for (core::RankNumber number = 0; number < live->ranks.size(); ++number) {
    const auto& rank = live->ranks[number];
    if (live->watch.rank(number).exited || rank.step == 0 || !rank.heard_at) continue;
    paces.push_back({rank.step, rank.quickest_ms, rank.slowest_ms, now - *rank.heard_at});
  }
  live->leave_step = ranks::leave_step(paces, interval, live->watch.rules().stop_grace);
  return *live->leave_step;
}

std::optional<core::Step> LiveRanks::checkpoint_told(const core::AttemptKey& key) const {
  std::lock_guard lock(mutex_);
  const auto* live = find(key);
  return live == nullptr ? std::nullopt : live->checkpoint_told;
}

bool LiveRanks::said_of_trace(const core::AttemptKey& key, core::RankNumber rank,
                              const muster::v1::TraceReport* report) {
  std::lock_guard lock(mutex_);
  auto* live = find(key);
  return live != nullptr && !live->ended && live->traces.said(rank, report);
}

std::optional<TraceWish> LiveRanks::trace_wish(const core::AttemptKey& key, core::RankNumber rank) const {
  std::lock_guard lock(mutex_);
  const auto* live = find(key);
  return live == nullptr || live->ended ? std::nullopt : live->traces.wish_for(rank);
}

std::optional<std::pair<core::AttemptNumber, StepTrace>> LiveRanks::find_trace(core::JobId job,
                                                                               std::uint64_t number) const {
  std::lock_guard lock(mutex_);
  for (auto place = attempts_.lower_bound({job, 0}); place != attempts_.end() && place->first.job == job; ++place) {
    if (const auto* trace = place->second.traces.find(number)) return std::pair(place->first.number, *trace);
  }
  return std::nullopt;
}

LiveRanks::TraceAnswer LiveRanks::ask_trace(const core::AttemptKey& key, const TraceWish& wish,
                                            const std::string& user) {
  std::lock_guard lock(mutex_);
  auto* live = find(key);
  if (live == nullptr || live->ended) return {};
  if (const auto unable = live->traces.unable()) return {{}, {}, unable};
  if (live->traces.find(wish.number) == nullptr) {
    if (const auto* other = live->traces.under_way()) return {{}, *other, {}};
  }
  live->traces.ask(wish, user);
  return {*live->traces.find(wish.number), {}, {}};
}

bool LiveRanks::ask_stacks(const core::AttemptKey& key, std::uint64_t number) {
  std::lock_guard lock(mutex_);
  auto* live = find(key);
  if (live == nullptr || live->ended) return false;
  live->stacks = std::max(live->stacks, number);
  return true;
}

std::uint64_t LiveRanks::stacks_asked(const core::AttemptKey& key) const {
  std::lock_guard lock(mutex_);
  const auto* live = find(key);
  return live == nullptr || live->ended ? 0 : live->stacks;
}

std::string LiveRanks::endpoint(const core::AttemptKey& key) const {
  std::lock_guard lock(mutex_);
  const auto* live = find(key);
  return live == nullptr || live->ended ? std::string() : live->endpoint;
}

std::optional<core::EventBody> LiveRanks::lost_node(const core::AttemptKey& key, const Round& round) {
  std::lock_guard lock(mutex_);
  auto* live = find(key);
  if (live == nullptr || live->ended) return std::nullopt;
  return live->watch.lost_node(heard_until(live->watch, round));
}

Watched LiveRanks::watch(const Round& round,
                         const std::function<executors::Vouch(const core::AttemptKey&, core::RankNumber)>& vouch) {
  Watched out;
  const auto now = round.now;
  const auto heard_until = [&](const AttemptWatch& watch) { return LiveRanks::heard_until(watch, round); };
  std::vector<std::pair<core::AttemptKey, core::RankNumber>> overdue;
  {
    std::lock_guard lock(mutex_);
    for (auto& [key, live] : attempts_) {
      if (live.ended) continue;
      if (round.deaf) live.watch.fresh_start(now);
      out.somebody_is_missed = out.somebody_is_missed || live.watch.misses_somebody(now);
      for (auto rank : live.watch.overdue(heard_until(live.watch))) overdue.emplace_back(key, rank);
      for (auto& fact : live.watch.findings(now)) out.facts.push_back({key.job, std::move(fact)});
      if (live.watch.must_stop_again(now)) out.stop_again.push_back(key);
    }
  }
  // An executor may be telling us something while we ask it, so no lock is held here.
  std::vector<executors::Vouch> words;
  for (const auto& [key, rank] : overdue) words.push_back(vouch(key, rank));
  std::lock_guard lock(mutex_);
  const auto with_each = [&](const auto& use) {
    for (std::size_t i = 0; i < overdue.size(); ++i) {
      const auto& [key, rank] = overdue[i];
      auto* live = find(key);
      if (live != nullptr && !live->ended) use(key, live->watch, rank, words[i]);
    }
  };
  // All of them first: one word for a neighbour says that their node is there.
  with_each(
      [&](const auto&, auto& watch, auto rank, executors::Vouch word) { watch.note(rank, word, heard_until(watch)); });
  with_each([&](const auto& key, auto& watch, auto rank, executors::Vouch word) {
    if (auto fact = watch.judge(rank, word, heard_until(watch))) out.facts.push_back({key.job, std::move(*fact)});
  });
  for (auto& [key, live] : attempts_) {
    if (live.ended) continue;
    if (auto fact = live.watch.suspicion(now, heard_until(live.watch))) {
      out.facts.push_back({key.job, std::move(*fact)});
    }
    if (live.watch.is_suspected()) out.suspected.push_back(key);
  }
  return out;
}

}  // namespace ranks
