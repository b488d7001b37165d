#include "controller/actions/action_runner.h"

#include <spdlog/spdlog.h>

#include "controller/jobs/specs.h"

namespace actions {
namespace {

/// Between two rounds of judging, however much changes.
constexpr core::Millis kJudgeInterval{100};
/// The outbox is read at most a fifth of the time, and looked at this often at least.
constexpr int kRestFactor = 4;
constexpr core::Millis kMostRest{500};
/// The batch of all stops: executors carry each out at once, so they need one transaction together.
const std::string kStops = "stops";

bool is_current(const core::Job& job, core::AttemptNumber number) {
  const auto* attempt = job.current();
  return attempt != nullptr && attempt->number == number && attempt->state != core::AttemptState::kEnded;
}

/// Only what waits in a queue can be held there, or let go.
bool is_queued(const core::Job& job, core::AttemptNumber number) {
  return is_current(job, number) && job.current()->state == core::AttemptState::kQueued;
}

/// True if the queue surely holds the attempt of a job. The oldest hold or release that is not done tells that: all
/// earlier ones are done. `rows`: the holds and releases of the job's attempt.
bool is_parked(const core::Job& job, const std::vector<Outbox::Row>& rows) {
  if (rows.empty()) return job.held;
  const bool asked_to_let_go = std::ranges::any_of(rows, [](const Outbox::Row& row) {
    return !std::get<core::HoldAttempt>(row.action).hold && row.state == store::ActionState::kLaunching;
  });
  return !std::get<core::HoldAttempt>(rows.front().action).hold && !asked_to_let_go;
}

}  // namespace

ActionRunner::ActionRunner(Parts parts, bool threads)
    : parts_(parts),
      threads_(threads),
      outbox_(parts.store, parts.clock),
      launches_(outbox_, parts),
      outbox_loop_("outbox", "the outbox could not be worked on", threads, [this] { return look(); }) {
  for (int i = 0; i < kLaunchers; ++i) {
    launchers_.emplace_back("launcher", "a launch was given up", threads, [this] { return launch_next(); });
  }
}

void ActionRunner::start(LaunchSettings settings) {
  launches_.start(std::move(settings));
  take_over();
  outbox_loop_.start();
  for (auto& launcher : launchers_) launcher.start();
}

void ActionRunner::take_over() {
  read_outbox();
  std::map<core::JobId, std::vector<Row>> holds;
  for (const auto& row : outbox_.rows()) {
    const auto job = parts_.event_log.job(row.job);
    if (job == nullptr) continue;
    if (const auto* hold = std::get_if<core::HoldAttempt>(&row.action); hold && is_queued(*job, hold->attempt)) {
      holds[row.job].push_back(row);
    }
    const auto* start = std::get_if<core::StartAttempt>(&row.action);
    if (start == nullptr || row.state != store::ActionState::kLaunching) continue;
    if (core::is_upcoming(*job, start->attempt) || start->attempt > job->attempts.size())
      parts_.admission.keep_slots(*job, row.share);
  }
  for (const auto& job : parts_.event_log.open_jobs()) {
    if (is_parked(*job, holds[job->id])) parts_.admission.park(*job);
    try {
      parts_.admission.keep_first(*job);
    } catch (const std::exception& e) {
      spdlog::warn("job {}: what it uses of this machine cannot be read: {}", job->id, e.what());
    }
  }
}

void ActionRunner::wake() {
  {
    std::lock_guard lock(mutex_);
    stale_ = true;
  }
  outbox_loop_.wake();
}

void ActionRunner::reconsider() {
  {
    std::lock_guard lock(mutex_);
    if (!some_wait_) return;
  }
  outbox_loop_.wake();
}

void ActionRunner::stop_taking() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    to_launch_.clear();
  }
  outbox_loop_.stop();
  for (auto& launcher : launchers_) launcher.stop();
}

void ActionRunner::close() {
  stop_taking();
  outbox_loop_.close();
  for (auto& launcher : launchers_) launcher.close();
}

// Thousands of waiting actions are read in one go: after a round that took long nobody is served sooner by the next
// than by those who carry them out.
std::optional<core::Millis> ActionRunner::look() {
  const auto begin = parts_.clock.monotonic();
  if (begin < rest_until_) return rest_until_ - begin;
  {
    std::lock_guard lock(mutex_);
    if (!stale_ && !others_left_ && begin < look_again_) return look_again_ - begin;
  }
  const auto pause = poll();
  const auto end = parts_.clock.monotonic();
  const auto rest = std::min((end - begin - others_took_) * kRestFactor, kMostRest);
  rest_until_ = end + rest;
  look_again_ = rest_until_ + kJudgeInterval;
  std::lock_guard lock(mutex_);
  if (stale_ || others_left_) return rest;
  return pause ? std::optional(std::max(*pause, rest + kJudgeInterval)) : std::nullopt;
}

std::optional<core::Millis> ActionRunner::launch_next() {
  std::optional<Turns<Batch>::Taken> next;
  {
    std::lock_guard lock(mutex_);
    next = to_launch_.take();
  }
  if (!next) return std::nullopt;
  launches_.perform(next->work);
  if (next->is_long) {
    {
      std::lock_guard lock(mutex_);
      to_launch_.ended();
    }
    wake_launchers();  // another one may have waited for that
  }
  wake();  // the job's next action may have waited for this one
  return core::Millis(0);
}

std::optional<core::Millis> ActionRunner::poll() {
  if (outbox_loop_.is_closed()) return std::nullopt;
  const auto begin = parts_.clock.monotonic();
  others_took_ = core::Millis(0);
  try {
    read_outbox();
  } catch (const std::exception& e) {
    {
      std::lock_guard lock(mutex_);
      stale_ = true;
    }
    if (threads_) throw;  // the loop tells, and rests
    spdlog::error("the outbox cannot be read: {}", e.what());
  }
  {
    std::lock_guard lock(mutex_);
    some_wait_ = true;  // what changes from now on may be too late for this round
  }
  std::vector<Batch> others;
  bool any_start = false;
  for (auto& batch : take_due()) {
    if (Outbox::is_start(batch.front())) {
      any_start = true;
      hand_on(std::move(batch));
    } else {
      others.push_back(std::move(batch));
    }
  }
  while (!threads_ && launch_next()) {
  }
  if (any_start) wake_launchers();
  perform_others(std::move(others));
  // The round may not have seen rows that became ready while it lasted.
  auto next = outbox_.next_ready(begin);
  if (const auto entry = parts_.admission.next_by_time(begin)) next = std::min(next.value_or(*entry), *entry);
  return next ? std::optional(std::max(*next - parts_.clock.monotonic(), core::Millis(0))) : std::nullopt;
}

std::string ActionRunner::user_of(const Batch& batch) const {
  const auto job = parts_.event_log.job(batch.front().job);
  return job == nullptr ? std::string() : job->user;
}

void ActionRunner::hand_on(Batch batch) {
  const auto user = user_of(batch);
  const bool is_long = batch.size() > 1;
  std::lock_guard lock(mutex_);
  if (!closed_) to_launch_.push(user, is_long, std::move(batch));
}

// All stops go together, and at once. The others take turns, and those that are not reached stay in the outbox.
void ActionRunner::perform_others(std::vector<Batch> batches) {
  Turns<Batch> turns(batches.size());
  for (auto& batch : batches) {
    if (std::holds_alternative<core::StopAttempt>(batch.front().action)) {
      perform(batch);
    } else {
      const auto user = user_of(batch);
      turns.push(user, false, std::move(batch));
    }
  }
  const auto begin = parts_.clock.monotonic();
  others_left_ = false;
  for (auto next = turns.take(); next; next = turns.take()) {
    others_left_ = others_left_ || (threads_ && parts_.clock.monotonic() - begin >= kOthersFor);
    if (others_left_) {
      for (const auto& row : next->work) outbox_.end(row);
    } else {
      perform(next->work);
    }
  }
  others_took_ = parts_.clock.monotonic() - begin;
}

void ActionRunner::read_outbox() {
  outbox_.complete_rest();
  {
    std::lock_guard lock(mutex_);
    if (!stale_) return;
    stale_ = false;
  }
  const auto now = parts_.clock.monotonic();
  for (const auto& row : outbox_.read()) {
    const auto* start = std::get_if<core::StartAttempt>(&row.action);
    if (start != nullptr) parts_.admission.expect({row.job, start->attempt}, now + backoff_left(row));
  }
}

// Worked out once, when the action is first seen, and never more than the job's own longest: the machine's clock may be
// set meanwhile, or may have been wrong when the backoff was stored.
core::Millis ActionRunner::backoff_left(const Row& row) const {
  const auto left = std::get<core::StartAttempt>(row.action).not_before - parts_.clock.wall();
  if (left <= core::Millis(0)) return core::Millis(0);
  const auto job = parts_.event_log.job(row.job);
  return job == nullptr ? core::Millis(0) : std::min(left, std::max(job->policy.backoff_max, core::Millis(0)));
}

std::vector<ActionRunner::Batch> ActionRunner::take_due() {
  std::vector<Batch> batches;
  std::map<std::string, std::size_t> open;  // by name: the batch that has room
  bool some_wait = false;
  for (auto& row : outbox_.ready()) {
    std::optional<std::string> name;
    try {
      name = judge(row);
    } catch (const std::exception& e) {
      // Not let in: what limits it may be what could not be read.
      parts_.admission.put_off(row.job, executors::LaunchLater{e.what()});
      outbox_.pause(row, executors::kTryAgainAfter);
    }
    some_wait = some_wait || !name;
    if (!name || !outbox_.begin(row)) continue;
    const auto known = open.find(*name);
    if (!name->empty() && known != open.end() && batches[known->second].size() < kLargestBatch) {
      batches[known->second].push_back(std::move(row));
      continue;
    }
    if (!name->empty()) open[*name] = batches.size();
    batches.push_back({std::move(row)});
  }
  std::lock_guard lock(mutex_);
  some_wait_ = some_wait;
  return batches;
}

std::optional<std::string> ActionRunner::judge(const Row& row) {
  if (std::holds_alternative<core::StopAttempt>(row.action)) return kStops;
  const auto* hold = std::get_if<core::HoldAttempt>(&row.action);
  if (hold == nullptr && !Outbox::is_start(row)) return std::string();
  const auto job = parts_.event_log.job(row.job);
  if (job == nullptr) return std::string();
  if (Outbox::is_start(row)) return judge_start(row, *job);
  const bool lets_go = !hold->hold && !job->held && is_queued(*job, hold->attempt);
  if (lets_go && parts_.admission.enter(*job, parts_.admission.limits(*job))) return std::nullopt;
  return std::string();
}

// One that is not to start any more is carried out at once: there is nothing to do, or something to be looked for.
std::optional<std::string> ActionRunner::judge_start(const Row& row, const core::Job& job) {
  const auto number = std::get<core::StartAttempt>(row.action).attempt;
  if (!core::is_upcoming(job, number) || job.held) return std::string();
  const auto limits = parts_.admission.limits(job);
  if (parts_.admission.enter(job, limits)) return std::nullopt;
  const bool may_go_together = number == 1 && limits.empty() && !job.sweep.sweep.empty();
  if (!may_go_together) return std::string();
  const auto spec = parts_.specs.get(job.id);
  return spec != nullptr && parts_.executor.has_queue(spec->executor()) ? job.sweep.sweep : std::string();
}

void ActionRunner::perform(const Batch& batch) {
  if (Outbox::is_start(batch.front())) return launches_.perform(batch);
  Outbox::Ids over;
  for (const auto& row : batch) {
    bool done = false;
    try {
      done = perform(row);
    } catch (const std::exception& e) {
      const auto* what = Outbox::is_hold(row) ? "a hold or release" : "an action";
      spdlog::error("job {}: {} failed and is tried again: {}", row.job, what, e.what());
    }
    if (!done) {
      outbox_.pause(row, executors::kTryAgainAfter);
    } else if (!Outbox::is_hold(row)) {  // hold_attempt() has completed its row
      over.push_back(row.id);
    }
  }
  outbox_.complete(over);
  for (const auto& row : batch) outbox_.end(row);
}

bool ActionRunner::perform(const Row& row) {
  if (Outbox::is_hold(row)) return hold_attempt(row);
  if (const auto* stop = std::get_if<core::StopAttempt>(&row.action)) return stop_attempt(row.job, *stop);
  return limit_attempt(row.job, std::get<core::LimitAttempt>(row.action));
}

bool ActionRunner::stop_attempt(core::JobId id, const core::StopAttempt& action) {
  const auto job = parts_.event_log.job(id);
  if (job == nullptr) return true;
  const auto number = action.attempt;
  const auto* attempt = number >= 1 && number <= job->attempts.size() ? &job->attempts[number - 1] : nullptr;
  if (attempt != nullptr && attempt->state == core::AttemptState::kEnded) return true;
  const auto spec = parts_.specs.get(id);
  if (spec == nullptr) return true;
  spdlog::info("job {} attempt {}: stopping: {}", id, number, action.reason);
  const auto cause = attempt != nullptr ? attempt->cause : core::Cause::kNone;
  executors::StopRequest how{jobs::stop_grace(*spec, action.save), action.save, executors::stop_word(cause)};
  if (action.save && job->is_command && parts_.leave_step) {
    how.at_step = parts_.leave_step({id, number}, core::Millis(spec->liveness().heartbeat_interval_ms()));
  }
  parts_.executor.stop({id, number}, how);
  return true;
}

bool ActionRunner::limit_attempt(core::JobId id, const core::LimitAttempt& action) {
  const auto job = parts_.event_log.job(id);
  if (job == nullptr || !is_current(*job, action.attempt) ||
      job->time_limit_asked.value_or(job->time_limit) != action.time_limit) {
    return true;
  }
  const auto answer = parts_.executor.limit({id, action.attempt}, action.time_limit);
  if (answer.kind == executors::LimitAnswer::Kind::kLater) return false;
  if (!job->time_limit_asked) return true;
  const core::TimeLimitAnswered answered{action.attempt, action.time_limit, answer.why};
  return parts_.event_log.keep_and_wait({{id, answered}}).front();
}

// The newest of several requests counts. Its row is done together with those that it has overtaken, so that after a
// crash the oldest one that is left tells whether the queue holds the attempt.
bool ActionRunner::hold_attempt(const Row& row) {
  const auto& action = std::get<core::HoldAttempt>(row.action);
  const auto job = parts_.event_log.job(row.job);
  if (job == nullptr || !is_queued(*job, action.attempt)) return outbox_.complete_hold(row);
  if (job->held != action.hold) {  // a newer request is on its way
    give_back(*job);
    return false;
  }
  if (!action.hold && row.state != store::ActionState::kLaunching) {
    try {
      outbox_.set_launching({{row.id}});
    } catch (...) {
      give_back(*job);
      throw;
    }
  }
  const auto answer = parts_.executor.hold({row.job, action.attempt}, action.hold);
  // An attempt that can't be held has started, or ended: hold() is called until that is known, over a restart, too.
  const bool done =
      answer == executors::HoldAnswer::kDone || (answer == executors::HoldAnswer::kRefused && !action.hold);
  if (!done || !outbox_.complete_hold(row)) return false;
  if (action.hold) parts_.admission.park(*job);
  reconsider();
  return true;
}

void ActionRunner::give_back(const core::Job& job) {
  auto rows = outbox_.rows();
  std::erase_if(rows, [&](const Row& row) { return row.job != job.id || !Outbox::is_hold(row); });
  if (!rows.empty() && is_parked(job, rows)) parts_.admission.park(job);
  reconsider();
}

}  // namespace actions
