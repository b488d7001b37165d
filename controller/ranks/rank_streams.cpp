#include "controller/ranks/rank_streams.h"

#include <cstdio>
#include <deque>

#include "controller/ranks/reports.h"

namespace ranks {

namespace v1 = muster::v1;

AttemptStanding standing_of(const core::Job& job, core::AttemptNumber number) {
  AttemptStanding standing;
  const auto& attempts = job.attempts;
  const bool newest = number == attempts.size();
  standing.current = newest && !attempts.empty() && attempts.back().state != core::AttemptState::kEnded;
  standing.upcoming = !standing.current && core::is_upcoming(job, number);
  if (standing.upcoming) standing.directive = v1::DIRECTIVE_CONTINUE;
  if (!standing.current) return standing;
  const auto& attempt = attempts.back();
  standing.cause = attempt.cause;
  if (attempt.state != core::AttemptState::kDraining) {
    standing.directive = v1::DIRECTIVE_CONTINUE;
  } else if (core::leaves_with_save(attempt.cause)) {
    standing.directive = v1::DIRECTIVE_SAVE_AND_LEAVE;
  }
  return standing;
}

bool AttemptStreams::Attempt::stand(const AttemptStanding& standing) {
  std::lock_guard lock(mutex_);
  return std::exchange(standing_, standing) != standing;
}

void AttemptStreams::forget(const core::AttemptKey& key, Stream* stream) {
  std::lock_guard lock(mutex_);
  const auto found = attempts_.find(key);
  if (found == attempts_.end() || found->second->streams_.erase(stream) == 0) return;
  --open_;
  if (found->second->streams_.empty()) attempts_.erase(found);
}

void AttemptStreams::follow(const core::Job& job) {
  std::vector<std::shared_ptr<Stream>> changed;
  {
    std::lock_guard lock(mutex_);
    for (auto place = attempts_.lower_bound({job.id, 0}); place != attempts_.end() && place->first.job == job.id;
         ++place) {
      auto& attempt = *place->second;
      if (!attempt.stand(standing_of(job, place->first.number))) continue;
      for (const auto& [_, stream] : attempt.streams_) {
        if (auto open = stream.lock()) changed.push_back(std::move(open));
      }
    }
  }
  for (const auto& stream : changed) stream->news();
}

void AttemptStreams::news_for(const core::AttemptKey& key) {
  std::vector<std::shared_ptr<Stream>> all;
  {
    std::lock_guard lock(mutex_);
    const auto place = attempts_.find(key);
    if (place == attempts_.end()) return;
    for (const auto& [_, stream] : place->second->streams_) {
      if (auto open = stream.lock()) all.push_back(std::move(open));
    }
  }
  for (const auto& stream : all) stream->news();
}

namespace {

/// Late for so long, and so long after the interval grew, it grows again.
constexpr core::Millis kLateFor{500};
constexpr core::Millis kGrowAgainAfter{3000};
/// The interval shrank too early if it grows again within this.
constexpr core::Millis kTooEarly{60'000};

std::string seconds_text(core::Millis time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(time.count()) / 1000);
  return text;
}

}  // namespace

void Pace::restarted(core::Millis now) {
  {
    const std::lock_guard lock(mutex_);
    restarted_at_ = now;
  }
  came_back(now);
}

void Pace::came_back(core::Millis now) {
  const std::lock_guard lock(mutex_);
  if (!restarted_at_ || now - *restarted_at_ >= kComeBack) return;
  longest_ = kMostFloor;
  longest_until_ = std::max(longest_until_, now + kFresh);
}

void Pace::note(core::Millis lag, core::Millis now) {
  const std::lock_guard lock(mutex_);
  lag_ = lag;
  if (now >= longest_until_) longest_ = floor_;
  if (lag >= kLate) {
    if (!late_) late_since_ = now;
    late_ = true;
    const bool may_grow = floor_ == core::Millis(0) || now - changed_at_ >= kGrowAgainAfter;
    if (now - late_since_ >= kLateFor && may_grow && floor_ < kMostFloor) grow(now);
    fine_since_ = now;
    return;
  }
  late_ = false;
  if (lag > kInTime) fine_since_ = now;
  if (floor_ > core::Millis(0) && now - std::max(fine_since_, changed_at_) >= calm_) shrink(now);
}

void Pace::grow(core::Millis now) {
  const bool too_early = shrunk_at_ > core::Millis(0) && now - shrunk_at_ < kTooEarly;
  calm_ = too_early ? std::min(calm_ * 2, kMostCalm) : kCalm;
  floor_ = std::max(kLeastFloor, floor_ * 2);
  longest_ = std::max(longest_, floor_);
  changed_at_ = now;
}

void Pace::shrink(core::Millis now) {
  // Each rank learns it with the answer to its next heartbeat.
  longest_until_ = std::max(longest_until_, now + kMissedAfter * floor_);
  floor_ = floor_ > kLeastFloor ? floor_ / 2 : core::Millis(0);
  changed_at_ = shrunk_at_ = now;
}

Pace::State Pace::state() const {
  const std::lock_guard lock(mutex_);
  if (late_) return State::kOverloaded;
  return floor_ > core::Millis(0) ? State::kSlowed : State::kFine;
}

core::Millis Pace::grace(core::Millis silent_after) const {
  const std::lock_guard lock(mutex_);
  const auto longest = std::max(floor_, longest_);
  if (longest == core::Millis(0)) return core::Millis(0);
  return std::max(core::Millis(0), kMissedAfter * longest - silent_after);
}

std::string Pace::problem() const {
  const auto now = state();
  if (now == State::kFine) return {};
  const std::lock_guard lock(mutex_);
  std::string text = now == State::kOverloaded
                         ? "overloaded: heartbeats are read " + seconds_text(lag_) + " after they arrive"
                         : "was overloaded a moment ago";
  if (floor_ > core::Millis(0)) text += "; ranks are asked for one heartbeat in " + seconds_text(floor_);
  return text + "; a rank that stops answering is found later, and no rank is called silent for it";
}

namespace v1 = muster::v1;
using common::Outcome;

using v1::HeartbeatRequest;

class RankStreams::Stream : public AnsweringStream<HeartbeatRequest, v1::BeatResponse>,
                            public std::enable_shared_from_this<Stream> {
 public:
  Stream(RankStreams& all, Rank rank, std::shared_ptr<AttemptStreams::Attempt> attempt, TellRank tell)
      : AnsweringStream(all.attempts_, rank.attempt, std::move(attempt), std::move(tell)),
        all_(all),
        parts_(all.parts_),
        rank_(rank) {}

  Outcome<bool> beat(const HeartbeatRequest& request) override;
  void work() override;
  /// False: nothing of this stream is on its way any more.
  bool settle();

 private:
  /// Rows that were taken together.
  struct Pending {
    std::uint64_t until = 0;  // the number after the last
    core::Step last_step = 0;
    std::shared_ptr<const MetricsWriter::Batch> batch;
  };
  void take_rows(const HeartbeatRequest& request);
  bool must_be_written(const HeartbeatRequest& request, const AttemptStanding& standing) const;
  void note_trace(const HeartbeatRequest& request);
  void pop_settled();
  void answer_if_due() override;
  bool nothing_waits() const { return pending_.empty() && !to_write_ && !working_; }
  bool waits_for_store() const { return !pending_.empty() && parts_.metrics.stands(); }

  RankStreams& all_;
  const Parts& parts_;
  const Rank rank_;
  // Rows, by the rank's numbers.
  bool numbered_ = false, has_gap_ = false;
  std::uint64_t durable_ = 0, taken_ = 0;
  std::uint64_t checkpoints_ = 0;
  std::deque<Pending> pending_;
  bool waits_for_commit_ = false;  // in waiting_
  bool refused_ = false;           // rows of the newest request have found no room, or their write failed
  // The request that must be written.
  std::optional<HeartbeatRequest> to_write_;
  bool working_ = false, joined_ = false, resumed_ = false, left_ = false;
  bool described_ = true;
  // The newest answer.
  v1::Directive told_directive_ = v1::DIRECTIVE_CONTINUE;
  bool told_waits_ = false;
  std::uint64_t told_trace_ = 0;
};

Outcome<bool> RankStreams::Stream::beat(const HeartbeatRequest& request) {
  // First of all: whatever follows must not make the rank look silent.
  const bool moved = parts_.live_ranks.heartbeat(key_, rank_.rank, request, parts_.clock.monotonic());
  ++all_.beats_;
  const auto standing = attempt_->now();
  if (moved || request.metrics_size() > 0) parts_.changes.bump(key_.job);
  std::lock_guard lock(mutex_);
  ++heard_;
  if (request.has_trace() || heard_ == 1) note_trace(request);
  if (rank_.rank == 0 && request.has_program()) described_ = false;
  take_rows(request);
  if (must_be_written(request, standing)) {
    to_write_ = request;
    to_write_->clear_metrics();
    to_write_->clear_series();
  }
  answer_soon_ = answer_soon_ || request.answer_soon();
  answer_if_due();
  return to_write_.has_value() && !working_;
}

void RankStreams::Stream::note_trace(const HeartbeatRequest& request) {
  const auto* report = request.has_trace() ? &request.trace() : nullptr;
  if (parts_.live_ranks.said_of_trace(key_, rank_.rank, report)) parts_.changes.bump(key_.job);
}

// Rows are numbered, so what was taken before and comes again is left out.
void RankStreams::Stream::take_rows(const HeartbeatRequest& request) {
  const auto first = request.first_metric();
  const auto end = first + static_cast<std::uint64_t>(request.metrics_size());
  if (!numbered_) {
    numbered_ = true;
    durable_ = taken_ = first;
    checkpoints_ = request.first_checkpoint();
  }
  refused_ = false;
  // The rank has lost the ones before. They may be in its report file.
  has_gap_ = has_gap_ || first > taken_;
  taken_ = std::max(taken_, first);
  if (pending_.empty()) durable_ = std::max(durable_, first);
  if (end <= taken_) return;
  if (!rank_.is_known) {
    durable_ = taken_ = end;
    return;
  }
  std::vector<store::MetricRow> rows;
  for (auto number = taken_; number < end; ++number) {
    rows.push_back(row_of(key_, rank_.rank, request.metrics(static_cast<int>(number - first))));
  }
  parts_.live_ranks.steps(key_, rows);
  const auto wanted = rows.size();
  // Before they are on their way: the commit may come back at any moment, and then waits for this stream.
  if (!std::exchange(waits_for_commit_, true)) all_.wait_for_commit(shared_from_this());
  auto taken = parts_.metrics.take(std::move(rows), declared_of(key_, request), request.answer_soon());
  refused_ = taken.rows < wanted;
  if (taken.rows == 0) return;
  taken_ += taken.rows;
  pending_.push_back({taken_, request.metrics(static_cast<int>(taken_ - first) - 1).step(), std::move(taken.batch)});
  pop_settled();
}

bool RankStreams::Stream::must_be_written(const HeartbeatRequest& request, const AttemptStanding& standing) const {
  if (request.checkpoints_size() > 0 && request.first_checkpoint() + request.checkpoints_size() > checkpoints_)
    return true;
  if (standing.current && (!joined_ || !described_)) return true;
  if (rank_.rank == 0 && request.has_resumed_from_step() && !resumed_) return true;
  return request.leaving() && !left_;
}

void RankStreams::Stream::work() {
  std::unique_lock lock(mutex_);
  if (!to_write_ || working_) return;
  working_ = true;
  while (to_write_) {
    const auto request = *std::exchange(to_write_, std::nullopt);
    lock.unlock();
    const auto written = parts_.write(request);
    lock.lock();
    joined_ = joined_ || written.joined;
    resumed_ = resumed_ || written.resumed;
    // Not if there has been more since the request.
    described_ = described_ || (written.described && !(to_write_ && to_write_->has_program()));
    left_ = left_ || request.leaving();
    checkpoints_ = std::max(checkpoints_, request.first_checkpoint() + written.checkpoints);
  }
  working_ = false;
  answer_if_due();
}

bool RankStreams::Stream::settle() {
  std::lock_guard lock(mutex_);
  pop_settled();
  answer_if_due();
  waits_for_commit_ = !pending_.empty();
  return waits_for_commit_;
}

void RankStreams::Stream::pop_settled() {
  while (!pending_.empty()) {
    const auto fate = pending_.front().batch->fate.load();
    if (fate == MetricsWriter::Fate::kWaits) return;
    if (fate == MetricsWriter::Fate::kFailed) {
      // The rank sends them again.
      taken_ = durable_;
      refused_ = true;
      pending_.clear();
      return;
    }
    durable_ = pending_.front().until;
    parts_.live_ranks.set_durable_step(key_, rank_.rank, has_gap_ ? 0 : pending_.front().last_step);
    pending_.pop_front();
  }
}

void RankStreams::Stream::answer_if_due() {
  const auto now = parts_.clock.monotonic();
  const auto directive = attempt_->now().directive;
  const auto interval = parts_.pace.interval(rank_.interval);
  const bool store_waits = refused_ || waits_for_store();
  const bool is_asked = answer_soon_ && (nothing_waits() || store_waits);
  const auto trace = parts_.live_ranks.trace_wish(key_, rank_.rank);
  const bool is_told = directive == told_directive_ && interval == told_interval_ && store_waits == told_waits_ &&
                       (!trace || trace->number == told_trace_);
  if (!tell_ || (is_told && !is_asked && !has_long_said_nothing(now))) return;
  answered_at_ = now;
  told_directive_ = directive;
  told_interval_ = interval;
  told_waits_ = store_waits;
  if (trace) told_trace_ = trace->number;
  answer_soon_ = answer_soon_ && !is_asked;
  v1::BeatResponse response;
  response.set_directive(directive);
  response.set_heartbeat_interval_ms(interval.count());
  response.set_metrics_durable(durable_);
  response.set_checkpoints_durable(checkpoints_);
  response.set_store_waits(store_waits);
  response.set_requests_heard(heard_);
  // In each answer, since a later one may replace one that is not sent yet.
  if (trace) *response.mutable_trace() = wire(*trace);
  tell_(response);
}

std::shared_ptr<RankStream> RankStreams::open(const Rank& rank, TellRank tell,
                                              const std::function<AttemptStanding()>& standing) {
  return attempts_.open(rank.attempt, standing, [&](auto attempt) {
    return std::make_shared<Stream>(*this, rank, std::move(attempt), std::move(tell));
  });
}

void RankStreams::settle() {
  std::vector<std::weak_ptr<Stream>> waiting;
  {
    std::lock_guard lock(waiting_mutex_);
    waiting.swap(waiting_);
  }
  std::erase_if(waiting, [](const std::weak_ptr<Stream>& stream) {
    const auto open = stream.lock();
    return open == nullptr || !open->settle();
  });
  std::lock_guard lock(waiting_mutex_);
  waiting_.insert(waiting_.end(), waiting.begin(), waiting.end());
}

class TaskStreams::Stream : public AnsweringStream<v1::TaskRequest, v1::TaskResponse> {
 public:
  Stream(TaskStreams& all, Rank rank, std::shared_ptr<AttemptStreams::Attempt> attempt, TellTask tell)
      : AnsweringStream(all.attempts_, rank.attempt, std::move(attempt), std::move(tell)), all_(all), rank_(rank) {}

  Outcome<bool> beat(const v1::TaskRequest& request) override {
    // An agent may have several ranks of its attempt.
    const auto rank = request.key().rank();
    if (rank >= rank_.world_size) {
      return common::Refusal::invalid("rank " + std::to_string(rank) + " of an attempt of " +
                                      std::to_string(rank_.world_size) + " ranks");
    }
    const auto standing = attempt_->now();
    if (standing.current || standing.upcoming) all_.note(key_, rank, request);
    std::lock_guard lock(mutex_);
    ++heard_;
    answer_soon_ = request.answer_soon();
    answer_if_due();
    return false;
  }

 private:
  void answer_if_due() override {
    const auto now = all_.parts_.clock.monotonic();
    const auto standing = attempt_->now();
    const auto interval = all_.parts_.pace.interval(rank_.interval);
    const auto stacks = all_.parts_.live_ranks.stacks_asked(key_);
    const bool is_told = standing == told_standing_ && interval == told_interval_ && stacks == told_stacks_;
    if (!tell_ || (is_told && !answer_soon_ && !has_long_said_nothing(now))) return;
    answered_at_ = now;
    told_standing_ = standing;
    told_interval_ = interval;
    told_stacks_ = stacks;
    answer_soon_ = false;
    auto answer = all_.answer(rank_, standing);
    answer.set_requests_heard(heard_);
    tell_(answer);
  }

  TaskStreams& all_;
  const Rank rank_;
  // With the newest answer.
  AttemptStanding told_standing_;
  std::uint64_t told_stacks_ = 0;
};

void TaskStreams::note(const core::AttemptKey& attempt, core::RankNumber rank, const v1::TaskRequest& request) const {
  parts_.executor.task(attempt, rank, report_of(request));
  if (!request.has_use()) return;
  if (parts_.live_ranks.used(attempt, rank, use_of(request.use()), parts_.clock.monotonic())) {
    parts_.changes.bump(attempt.job);
  }
}

v1::TaskResponse TaskStreams::answer(const Rank& rank, const AttemptStanding& standing) const {
  v1::TaskResponse response;
  response.set_directive(standing.directive);
  response.set_interval_ms(parts_.pace.interval(rank.interval).count());
  response.set_stacks(parts_.live_ranks.stacks_asked(rank.attempt));
  if (standing.directive == v1::DIRECTIVE_CONTINUE) return response;
  const bool save = standing.directive == v1::DIRECTIVE_SAVE_AND_LEAVE;
  response.set_stop_why(executors::stop_word(standing.cause));
  response.set_stop_grace_ms((save ? rank.save_grace : rank.stop_grace).count());
  if (!save || !rank.is_command) return response;
  const auto now = parts_.clock.monotonic();
  if (const auto step = parts_.live_ranks.leave_step(rank.attempt, rank.interval, now)) {
    response.set_stop_at_step(*step);
  }
  return response;
}

std::shared_ptr<TaskStream> TaskStreams::open(const Rank& rank, TellTask tell,
                                              const std::function<AttemptStanding()>& standing) {
  return attempts_.open(rank.attempt, standing, [&](auto attempt) {
    return std::make_shared<Stream>(*this, rank, std::move(attempt), std::move(tell));
  });
}

}  // namespace ranks
