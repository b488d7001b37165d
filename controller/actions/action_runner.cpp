#include "actions/action_runner.h"
#include "jobs/spec_values.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/room.h"

namespace runtime {
namespace {

constexpr core::Millis kOutboxInterval{100};
/// The outbox is read at most a fifth of the time, and looked at this often at least.
constexpr int kRestFactor = 4;
constexpr core::Millis kMostRest{500};
/// The batch of all stops: executors carry each out at once, so they need one transaction together.
const std::string kStops = "stops";
// A gang that has lost a rank can't finish its step: the others get this long to leave.

// Whether the same folder may take writes later.
bool may_heal(int error) {
  return error != EROFS && error != EACCES && error != EPERM && error != ENOTDIR && error != ENAMETOOLONG;
}

bool is_current(const core::Job& job, core::AttemptNumber number) {
  const auto* attempt = job.current();
  return attempt != nullptr && attempt->number == number && attempt->state != core::AttemptState::kEnded;
}

// Of several requests the newest counts; one that has left the queue goes on.
bool is_wanted(const core::Job& job, const core::HoldAttempt& action) {
  return is_current(job, action.attempt) && job.current()->state == core::AttemptState::kQueued &&
         job.held == action.hold;
}

core::AttemptKey key_of(const store::PendingAction& start) {
  return {start.job, std::get<core::StartAttempt>(start.action).attempt};
}

std::string folder_problem(const std::system_error& e) {
  const bool heals = may_heal(e.code().value());
  return std::string(e.what()) + (heals ? "" : "; make the folder writable or name another one in the job file");
}

}  // namespace

ActionRunner::ActionRunner(Parts parts, bool threads) : parts_(parts), threads_(threads) {}

ActionRunner::~ActionRunner() {
  close();
}

void ActionRunner::start(LaunchSettings settings) {
  settings_ = std::move(settings);
  keep_places();
  if (!threads_) return;
  threads_running_.emplace_back([this] { run_outbox(); });
  for (int i = 0; i < kLaunchers; ++i) threads_running_.emplace_back([this] { run_launcher(); });
}

// What an earlier run of the controller began, and jobs' histories do not tell: attempts that were handed over have
// their places before anybody else, and of what the queue was asked to hold or release it may have done any part.
void ActionRunner::keep_places() {
  std::set<core::JobId> asked;
  std::vector<JobPtr> released;
  for (const auto& action : parts_.store.pending_actions()) {
    const auto job = parts_.event_log.job(action.job);
    if (job == nullptr) continue;
    if (const auto* hold = std::get_if<core::HoldAttempt>(&action.action)) {
      asked.insert(job->id);
      if (!hold->hold) released.push_back(job);
    }
    const auto* start = std::get_if<core::StartAttempt>(&action.action);
    if (start == nullptr || !core::is_upcoming(*job, start->attempt)) continue;
    const auto handover = parts_.executor.handover(settings_.data.attempt({job->id, start->attempt}));
    if (handover == Handover::kNone) continue;
    parts_.gate.keep(*job, handover == Handover::kInArray);
    parts_.partitions.keep(*job);
    unsure_.insert(action.id);
  }
  for (const auto& job : parts_.event_log.open_jobs()) {
    if (!asked.contains(job->id)) parts_.gate.hold(*job);
  }
  for (const auto& job : released) parts_.gate.release(*job);
  // Those that were let go before are the first that can be.
  for (const auto& job : released) parts_.gate.let_go(*job);
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

// Thousands of waiting actions are read in one go: after a round that took long nobody is served sooner by the next
// than by those who carry them out.
void ActionRunner::run_outbox() {
  core::Millis rest(0);
  while (true) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, rest, [&] { return closed_; });
      wake_.wait_for(lock, kOutboxInterval, [&] { return closed_ || stale_; });
      if (closed_) return;
    }
    const auto begin = parts_.clock.monotonic();
    poll();
    rest = std::min((parts_.clock.monotonic() - begin) * kRestFactor, kMostRest);
  }
}

void ActionRunner::run_launcher() {
  while (true) {
    Batch batch;
    {
      std::unique_lock lock(mutex_);
      launchers_wake_.wait(lock, [&] { return closed_ || !launches_.empty(); });
      if (closed_) return;
      batch = std::move(launches_.front());
      launches_.pop_front();
    }
    perform(batch);
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
  std::vector<Batch> batches;
  try {
    batches = take_due();
  } catch (const std::exception& e) {
    spdlog::error("jobs cannot be read: {}", e.what());
    return;
  }
  for (auto& batch : batches) {
    if (!threads_ || !std::holds_alternative<core::StartAttempt>(batch.front().action)) {
      perform(batch);
    } else {
      {
        std::lock_guard lock(mutex_);
        if (closed_) return;
        launches_.push_back(std::move(batch));
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
  complete({unfinished.begin(), unfinished.end()});
  {
    std::lock_guard lock(mutex_);
    if (!stale_) return;
    stale_ = false;
  }
  auto pending = parts_.store.pending_actions();
  std::erase_if(pending, [](const auto& each) { return std::holds_alternative<core::RemoveFiles>(each.action); });
  std::map<std::int64_t, Plan> plans;
  const auto now = parts_.clock.monotonic();
  for (const auto& action : pending) {
    const auto known = plans_.find(action.id);
    plans.emplace(action.id,
                  known != plans_.end() ? known->second : Plan{now + backoff_left(action), batch_name(action)});
  }
  std::lock_guard lock(mutex_);
  plans_ = std::move(plans);
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
  const auto job = parts_.event_log.job(action.job);
  return job == nullptr ? core::Millis(0) : std::min(left, std::max(job->policy.backoff_max, core::Millis(0)));
}

std::vector<ActionRunner::Batch> ActionRunner::take_due() {
  std::vector<store::PendingAction> due;
  {
    const auto now = parts_.clock.monotonic();
    std::lock_guard lock(mutex_);
    ToQueue to_queue;
    for (const auto& [id, action] : waiting_) {
      if (under_way_.contains(id) || now < plans_.at(id).due) continue;
      if (const auto again = not_again_before_.find(id); again != not_again_before_.end() && now < again->second)
        continue;
      const bool start = std::holds_alternative<core::StartAttempt>(action.action);
      if (start && jobs_launching_.contains(action.job)) continue;
      if (gate_closed(action, to_queue)) continue;
      if (start) jobs_launching_.insert(action.job);
      under_way_.insert(id);
      due.push_back(action);
    }
  }
  std::vector<Batch> batches;
  std::map<std::string, std::size_t> open;  // sweep -> its batch that has room
  for (auto& action : due) {
    const auto name = std::holds_alternative<core::StopAttempt>(action.action) ? kStops
                      : parts_.gate.goes_alone(action.job)                     ? std::string()
                                                                               : plans_.at(action.id).batch;
    const auto place = open.find(name);
    if (!name.empty() && place != open.end() && batches[place->second].size() < kLargestBatch) {
      batches[place->second].push_back(std::move(action));
      continue;
    }
    if (!name.empty()) open[name] = batches.size();
    batches.push_back({std::move(action)});
  }
  return batches;
}

std::string ActionRunner::batch_name(const store::PendingAction& action) const {
  const auto* start = std::get_if<core::StartAttempt>(&action.action);
  if (start == nullptr || start->attempt != 1) return {};
  const auto job = parts_.event_log.job(action.job);
  if (job == nullptr || job->sweep.sweep.empty()) return {};
  try {
    const auto spec = parts_.specs.get(action.job);
    return spec != nullptr && parts_.executor.has_queue(spec->executor()) ? job->sweep.sweep : std::string();
  } catch (const std::exception&) {
    return {};  // it goes alone, and what is wrong is told there
  }
}

std::size_t ActionRunner::count_to_queue(const std::string& sweep, ToQueue& known) const {
  if (known.empty()) {
    for (const auto& [id, action] : waiting_) {
      if (under_way_.contains(id) || !goes_together(action)) continue;
      const auto key = key_of(action);
      const auto job = parts_.event_log.job(key.job);
      if (job != nullptr && !job->held && core::is_upcoming(*job, key.number)) ++known[plans_.at(id).batch];
    }
    known.try_emplace("");  // counted
  }
  const auto found = known.find(sweep);
  return found == known.end() ? 0 : found->second;
}

// Arrays of a limited sweep wait for one another. Elements that a partition lets in one by one would each be an array,
// and only one of them run at a time.
bool ActionRunner::goes_together(const store::PendingAction& action) const {
  if (plans_.at(action.id).batch.empty()) return false;
  try {
    return !parts_.partitions.limits_running(action.job);
  } catch (const std::exception&) {
    return true;  // what is wrong is told where it is carried out
  }
}

bool ActionRunner::gate_closed(const store::PendingAction& action, ToQueue& to_queue) {
  const auto* hold = std::get_if<core::HoldAttempt>(&action.action);
  if (hold == nullptr && !std::holds_alternative<core::StartAttempt>(action.action)) return false;
  try {
    const auto job = parts_.event_log.job(action.job);
    if (job == nullptr) return false;
    if (hold != nullptr) return !hold->hold && is_wanted(*job, *hold) && !parts_.gate.let_go(*job);
    if (!core::is_upcoming(*job, key_of(action).number)) return false;
    if (unsure_.contains(action.id)) {  // whatever limits there are by now
      parts_.partitions.keep(*job);
      return false;
    }
    // First attempts wait for no others.
    const bool waits_for_others = job->sweep.parallel > 0 && !job->attempts.empty();
    const auto others = waits_for_others ? count_to_queue(job->sweep.sweep, to_queue) : 0;
    const bool together = goes_together(action);
    if (!parts_.partitions.enter(*job)) return true;
    if (parts_.gate.enter(*job, together, others)) return false;
    parts_.partitions.leave(job->id);
  } catch (const std::exception& e) {
    // Not let in: what limits it may be what could not be asked.
    not_again_before_[action.id] = parts_.clock.monotonic() + kTryAgainAfter;
    note(action.job, LaunchLater{e.what()});
  }
  return true;
}

void ActionRunner::perform(const Batch& batch) {
  const bool start = std::holds_alternative<core::StartAttempt>(batch.front().action);
  Pauses pauses(batch.size(), LaunchLater{.why = {}, .unsure = start});  // if something throws
  try {
    if (start) {
      pauses = start_attempts(batch);
    } else {
      for (std::size_t i = 0; i < batch.size(); ++i) {
        if (perform(batch[i])) pauses[i].reset();
      }
    }
  } catch (const std::exception& e) {
    spdlog::error("job {}: an action failed and is tried again: {}", batch.front().job, e.what());
  }
  finish(batch, pauses);
  std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    under_way_.erase(batch[i].id);
    if (!start) continue;
    jobs_launching_.erase(batch[i].job);
    if (pauses[i] && pauses[i]->unsure) {
      unsure_.insert(batch[i].id);  // or another would take the place of what is there
      continue;
    }
    unsure_.erase(batch[i].id);
    parts_.gate.leave(batch[i].job);
    parts_.partitions.leave(batch[i].job);
  }
}

bool ActionRunner::perform(const store::PendingAction& action) {
  if (const auto* stop = std::get_if<core::StopAttempt>(&action.action)) return stop_attempt(action.job, *stop);
  if (const auto* hold = std::get_if<core::HoldAttempt>(&action.action)) return hold_attempt(action.job, *hold);
  return limit_attempt(action.job, std::get<core::LimitAttempt>(action.action));
}

ActionRunner::Pauses ActionRunner::start_attempts(const Batch& batch) {
  Pauses pauses(batch.size());
  std::vector<LaunchRequest> requests;
  std::vector<std::size_t> places;  // of the requests, in the batch
  std::vector<std::pair<std::size_t, LaunchAnswer>> answers;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto key = key_of(batch[i]);
    try {
      auto prepared = prepare(key);
      if (auto* request = std::get_if<LaunchRequest>(&prepared)) {
        requests.push_back(std::move(*request));
        places.push_back(i);
      } else if (auto* answer = std::get_if<LaunchAnswer>(&prepared)) {
        answers.emplace_back(i, std::move(*answer));
      }
    } catch (const std::exception& e) {
      const auto handover = parts_.executor.handover(settings_.data.attempt(key));
      pauses[i] = LaunchLater{.why = e.what(), .unsure = handover != Handover::kNone};
    }
  }
  auto launched = launch(requests);
  for (std::size_t i = 0; i < launched.size(); ++i) answers.emplace_back(places[i], std::move(launched[i]));
  std::vector<std::pair<core::JobId, core::EventBody>> facts;
  std::vector<std::size_t> of_facts;
  for (auto& [place, answer] : answers) {
    const auto key = key_of(batch[place]);
    if (auto* later = std::get_if<LaunchLater>(&answer)) {
      if (parts_.executor.queue_word(key)) later->why.clear();
      pauses[place] = std::move(*later);
      continue;
    }
    auto* fact = std::get_if<core::AttemptLaunched>(&answer);
    pauses[place] = LaunchLater{.why = {}, .unsure = fact != nullptr};  // unless it is kept
    facts.emplace_back(key.job, fact != nullptr ? core::EventBody(std::move(*fact))
                                                : core::EventBody(std::get<core::AttemptLaunchFailed>(answer)));
    of_facts.push_back(place);
  }
  const auto kept = parts_.event_log.keep_all_and_wait(std::move(facts));
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (kept[i]) pauses[of_facts[i]].reset();
  }
  return pauses;
}

std::vector<LaunchAnswer> ActionRunner::launch(std::vector<LaunchRequest>& requests) {
  if (requests.empty()) return {};
  leave_out_lost_nodes(requests);
  if (requests.size() == 1) return {parts_.executor.launch(requests.front())};
  return parts_.executor.launch_all(requests);
}

// What a person holds, or what can't be planned any more, may be with a scheduler that has not said so yet.
std::variant<std::monostate, LaunchRequest, LaunchAnswer> ActionRunner::prepare(const core::AttemptKey& key) {
  const auto job = parts_.event_log.job(key.job);
  if (job == nullptr || !core::is_upcoming(*job, key.number)) return {};
  if (job->held) {
    auto answer = withdraw(key);
    if (!answer) return {};
    return *std::move(answer);
  }
  auto planned = plan(*job, key.number);
  if (auto* request = std::get_if<LaunchRequest>(&planned)) return std::move(*request);
  if (auto answer = withdraw(key)) return *std::move(answer);
  if (auto* later = std::get_if<LaunchLater>(&planned)) return LaunchAnswer(std::move(*later));
  return LaunchAnswer(std::move(std::get<core::AttemptLaunchFailed>(planned)));
}

std::optional<LaunchAnswer> ActionRunner::withdraw(const core::AttemptKey& key) {
  const auto spec = parts_.specs.get(key.job);
  return spec == nullptr ? std::nullopt : parts_.executor.withdraw(launch_request(*spec, key, settings_));
}

std::variant<LaunchRequest, core::AttemptLaunchFailed, LaunchLater> ActionRunner::plan(const core::Job& job,
                                                                                       core::AttemptNumber attempt) {
  const core::AttemptKey key{job.id, attempt};
  const auto spec = parts_.specs.get(job.id);
  if (spec == nullptr) return core::AttemptLaunchFailed{attempt, "the job has no stored spec", false};
  try {
    prepare_folders(*spec, key, settings_);
  } catch (const std::system_error& e) {
    if (lacks_room(e.code().value())) return LaunchLater{e.what(), kTryAgainAfter, make_room(e.code().value())};
    return core::AttemptLaunchFailed{attempt, folder_problem(e), may_heal(e.code().value())};
  }
  auto request = launch_request(*spec, key, settings_);
  request.time_limit = job.time_limit;  // people may have changed it
  request.sweep = parts_.gate.goes_alone(job.id) ? std::string() : job.sweep.sweep;
  parts_.partitions.equip(request);
  return request;
}

std::vector<std::string> kept_off(core::JobId job, const LostNodes& lost) {
  std::vector<std::string> nodes;
  for (const auto& [node, only] : lost) {
    const bool concerns = only == 0 || only == job;
    if (concerns && std::ranges::find(nodes, node) == nodes.end()) nodes.push_back(node);
  }
  return nodes;
}

LostNodes ActionRunner::nodes_lost_lately() const {
  LostNodes nodes;
  for (const auto& event : parts_.store.node_losses(parts_.clock.wall() - parts_.excluded_for, kMostExcluded)) {
    const auto& lost = std::get<core::NodeLost>(event.event.body);
    nodes.emplace_back(lost.node, lost.only_this_job ? event.job : 0);
  }
  return nodes;
}

void ActionRunner::leave_out_lost_nodes(std::vector<LaunchRequest>& requests) const {
  const auto lost = nodes_lost_lately();
  for (auto& request : requests) request.exclude_nodes = kept_off(request.key.job, lost);
}

bool ActionRunner::hold_attempt(core::JobId id, const core::HoldAttempt& action) {
  const auto job = parts_.event_log.job(id);
  if (job == nullptr || !is_wanted(*job, action)) return true;
  const auto answer = parts_.executor.hold({id, action.attempt}, action.hold);
  if (answer == HoldAnswer::kDone && action.hold) parts_.gate.hold(*job);
  // What can't be held any more has started, or ended: until that is known it is asked again, over a restart, too.
  return answer == HoldAnswer::kDone || (answer == HoldAnswer::kRefused && !action.hold);
}

bool ActionRunner::limit_attempt(core::JobId id, const core::LimitAttempt& action) {
  const auto job = parts_.event_log.job(id);
  if (job == nullptr || !is_current(*job, action.attempt) ||
      job->time_limit_asked.value_or(job->time_limit) != action.time_limit) {
    return true;
  }
  const auto answer = parts_.executor.limit({id, action.attempt}, action.time_limit);
  if (answer.kind == LimitAnswer::Kind::kLater) return false;
  if (!job->time_limit_asked) return true;
  return parts_.event_log.keep_and_wait(id, core::TimeLimitAnswered{action.attempt, action.time_limit, answer.why});
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
  parts_.executor.stop({id, number}, {stop_grace(*spec, action.save), action.save, stop_word(cause)});
  return true;
}

std::optional<LaunchLater> ActionRunner::put_off(core::JobId job) const {
  std::lock_guard lock(mutex_);
  const auto found = put_off_.find(job);
  return found == put_off_.end() ? std::nullopt : std::optional(found->second);
}

void ActionRunner::note(core::JobId job, const std::optional<LaunchLater>& later) {
  if (!later || later->why.empty()) {
    put_off_.erase(job);
    return;
  }
  auto& known = put_off_[job];
  // Once, not at every try.
  if (known.why != later->why) spdlog::warn("job {}: not started yet, and tried again: {}", job, later->why);
  known = *later;
}

void ActionRunner::finish(const Batch& batch, const Pauses& pauses) {
  std::vector<std::int64_t> completed;
  {
    const auto now = parts_.clock.monotonic();
    std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < batch.size(); ++i) {
      if (std::holds_alternative<core::StartAttempt>(batch[i].action)) note(batch[i].job, pauses[i]);
      if (pauses[i]) {
        not_again_before_[batch[i].id] = now + pauses[i]->pause;
      } else {
        completed.push_back(batch[i].id);
      }
    }
  }
  complete(completed);
}

void ActionRunner::complete(const std::vector<std::int64_t>& actions) {
  if (actions.empty()) return;
  bool completed = true;
  try {
    parts_.store.complete_actions(actions);
  } catch (const std::exception& e) {
    spdlog::warn("finished actions cannot be ticked off yet: {}", e.what());
    completed = false;
  }
  std::lock_guard lock(mutex_);
  for (const auto id : actions) {
    waiting_.erase(id);
    not_again_before_.erase(id);
    if (!completed) to_complete_.insert(id);
  }
}

}  // namespace runtime
