#include "runtime/action_runner.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace runtime {
namespace {

constexpr core::Millis kOutboxInterval{100};
constexpr core::Millis kTryAgainAfter{1000};
// A gang that has lost a rank can't finish its step: the others get this long to leave.
constexpr core::Millis kShortGrace{2000};

// Whether the same folder may take writes later.
bool may_heal(int error) {
  return error != EROFS && error != EACCES && error != EPERM && error != ENOTDIR && error != ENAMETOOLONG;
}

std::string folder_problem(const std::system_error& e) {
  const bool heals = may_heal(e.code().value());
  return std::string(e.what()) + (heals ? "" : "; make the folder writable or name another one in the job file");
}

}  // namespace

core::Millis stop_grace(const muster::v1::JobSpec& spec, bool save) {
  const core::Millis grace(spec.resources().stop_grace_ms());
  return save ? grace : std::min(grace, kShortGrace);
}

bool expects_launch(const core::Job& job, core::AttemptNumber number) {
  if (job.cancel_requested || core::is_ended(job.state)) return false;
  const auto* newest = job.current();
  if (newest != nullptr && newest->number == number) {
    return newest->state == core::AttemptState::kStarting && !newest->started_at;
  }
  const bool between = newest == nullptr || newest->state == core::AttemptState::kEnded;
  return between && number == (newest == nullptr ? 1 : newest->number + 1);
}

ActionRunner::ActionRunner(Parts parts, bool threads) : parts_(parts), threads_(threads) {}

ActionRunner::~ActionRunner() {
  close();
}

void ActionRunner::start(LaunchSettings settings) {
  settings_ = std::move(settings);
  if (!threads_) return;
  threads_running_.emplace_back([this] { run_outbox(); });
  for (int i = 0; i < kLaunchers; ++i) threads_running_.emplace_back([this] { run_launcher(); });
}

void ActionRunner::wake() {
  {
    std::lock_guard lock(mutex_);
    stale_ = true;
  }
  wake_.notify_one();
}

void ActionRunner::stop_taking() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    launches_.clear();
  }
  wake_.notify_all();
  launchers_wake_.notify_all();
}

void ActionRunner::close() {
  stop_taking();
  for (auto& thread : threads_running_) thread.join();
  threads_running_.clear();
}

void ActionRunner::run_outbox() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, kOutboxInterval, [&] { return closed_ || stale_; });
      if (closed_) return;
    }
    poll();
  }
}

void ActionRunner::run_launcher() {
  while (true) {
    store::PendingAction action;
    {
      std::unique_lock lock(mutex_);
      launchers_wake_.wait(lock, [&] { return closed_ || !launches_.empty(); });
      if (closed_) return;
      action = std::move(launches_.front());
      launches_.pop_front();
    }
    perform(action);
    wake();  // the job's next action may have waited for this one
  }
}

void ActionRunner::poll() {
  try {
    read_outbox();
  } catch (const std::exception& e) {
    spdlog::error("the outbox cannot be read: {}", e.what());
    std::lock_guard lock(mutex_);
    stale_ = true;
    if (threads_) return;
  }
  for (auto& action : take_due()) {
    if (!threads_ || std::holds_alternative<core::StopAttempt>(action.action)) {
      perform(action);
    } else {
      {
        std::lock_guard lock(mutex_);
        if (closed_) return;
        launches_.push_back(std::move(action));
      }
      launchers_wake_.notify_one();
    }
  }
}

void ActionRunner::read_outbox() {
  std::set<std::int64_t> unfinished;
  {
    std::lock_guard lock(mutex_);
    unfinished.swap(to_complete_);
  }
  for (const auto id : unfinished) finish(id, true);
  {
    std::lock_guard lock(mutex_);
    if (!stale_) return;
    stale_ = false;
  }
  auto pending = parts_.store.pending_actions();
  std::map<std::int64_t, core::Millis> due;
  const auto now = parts_.clock.monotonic();
  for (const auto& action : pending) due.emplace(action.id, now + backoff_left(action));
  std::lock_guard lock(mutex_);
  for (auto& [id, at] : due) {
    if (const auto known = due_.find(id); known != due_.end()) at = known->second;
  }
  due_ = std::move(due);
  waiting_.clear();
  for (auto& action : pending) {
    if (!to_complete_.contains(action.id)) waiting_.emplace(action.id, std::move(action));
  }
  std::erase_if(not_again_before_, [&](const auto& entry) { return !waiting_.contains(entry.first); });
}

// Worked out once, when the action is first seen, and never more than the job's own longest: the machine's clock may be
// set meanwhile, or may have been wrong when the backoff was stored.
core::Millis ActionRunner::backoff_left(const store::PendingAction& action) const {
  const auto* start = std::get_if<core::StartAttempt>(&action.action);
  const auto left = start == nullptr ? core::Millis(0) : start->not_before - parts_.clock.wall();
  if (left <= core::Millis(0)) return core::Millis(0);
  const auto job = parts_.dispatcher.job(action.job);
  return job == nullptr ? core::Millis(0) : std::min(left, std::max(job->policy.backoff_max, core::Millis(0)));
}

std::vector<store::PendingAction> ActionRunner::take_due() {
  std::vector<store::PendingAction> due;
  const auto now = parts_.clock.monotonic();
  std::lock_guard lock(mutex_);
  for (const auto& [id, action] : waiting_) {
    if (under_way_.contains(id) || now < due_.at(id)) continue;
    if (const auto again = not_again_before_.find(id); again != not_again_before_.end() && now < again->second)
      continue;
    if (std::holds_alternative<core::StartAttempt>(action.action)) {
      if (jobs_launching_.contains(action.job)) continue;
      jobs_launching_.insert(action.job);
    }
    under_way_.insert(id);
    due.push_back(action);
  }
  return due;
}

void ActionRunner::perform(const store::PendingAction& action) {
  bool done = false;
  try {
    if (const auto* start = std::get_if<core::StartAttempt>(&action.action)) {
      done = start_attempt(action.job, *start);
    } else {
      done = stop_attempt(action.job, std::get<core::StopAttempt>(action.action));
    }
  } catch (const std::exception& e) {
    spdlog::error("job {}: an action failed and is tried again: {}", action.job, e.what());
  }
  finish(action.id, done);
  std::lock_guard lock(mutex_);
  under_way_.erase(action.id);
  if (std::holds_alternative<core::StartAttempt>(action.action)) jobs_launching_.erase(action.job);
}

bool ActionRunner::start_attempt(core::JobId id, const core::StartAttempt& action) {
  const auto job = parts_.dispatcher.job(id);
  if (job == nullptr || !expects_launch(*job, action.attempt)) return true;
  return parts_.dispatcher.keep_and_wait(id, launch(*job, action.attempt));
}

core::EventBody ActionRunner::launch(const core::Job& job, core::AttemptNumber attempt) {
  const core::AttemptKey key{job.id, attempt};
  const auto spec = parts_.specs.get(job.id);
  if (spec == nullptr) return core::AttemptLaunchFailed{attempt, "the job has no stored spec", false};
  try {
    prepare_folders(*spec, key, settings_);
  } catch (const std::system_error& e) {
    return core::AttemptLaunchFailed{attempt, folder_problem(e), may_heal(e.code().value())};
  }
  return parts_.executor.launch(launch_request(*spec, key, settings_));
}

bool ActionRunner::stop_attempt(core::JobId id, const core::StopAttempt& action) {
  const auto job = parts_.dispatcher.job(id);
  if (job == nullptr) return true;
  const auto number = action.attempt;
  if (number >= 1 && number <= job->attempts.size() && job->attempts[number - 1].state == core::AttemptState::kEnded) {
    return true;
  }
  const auto spec = parts_.specs.get(id);
  if (spec == nullptr) return true;
  spdlog::info("job {} attempt {}: stopping: {}", id, number, action.reason);
  parts_.executor.stop({id, number}, {stop_grace(*spec, action.save)});
  return true;
}

void ActionRunner::finish(std::int64_t action_id, bool done) {
  if (!done) {
    std::lock_guard lock(mutex_);
    not_again_before_[action_id] = parts_.clock.monotonic() + kTryAgainAfter;
    return;
  }
  bool completed = true;
  try {
    parts_.store.complete_action(action_id);
  } catch (const std::exception& e) {
    spdlog::warn("a finished action cannot be ticked off yet: {}", e.what());
    completed = false;
  }
  std::lock_guard lock(mutex_);
  waiting_.erase(action_id);
  not_again_before_.erase(action_id);
  if (!completed) to_complete_.insert(action_id);
}

}  // namespace runtime
