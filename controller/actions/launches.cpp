#include "controller/actions/launches.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "controller/common/changes.h"

namespace actions {
namespace {

/// The pause before the store is asked again to take what it did not take.
constexpr core::Millis kCompleteAgain{100};

}  // namespace

std::vector<Outbox::Row> Outbox::read() {
  auto stored = store_.pending_actions();
  std::erase_if(stored, [](const Row& row) { return std::holds_alternative<core::RemoveFiles>(row.action); });
  std::vector<std::int64_t> fresh;
  std::set<std::int64_t> there;
  std::lock_guard lock(mutex_);
  for (auto& row : stored) {
    there.insert(row.id);
    if (rows_.contains(row.id) || to_complete_.contains(row.id)) continue;
    fresh.push_back(row.id);
    rows_.emplace(row.id, Entry{std::move(row)});
  }
  std::erase_if(rows_, [&](const auto& entry) { return !there.contains(entry.first) && !entry.second.under_way; });
  spread_launching();
  std::vector<Row> found;
  for (const auto id : fresh) found.push_back(rows_.at(id).row);
  return found;
}

// A job that was held and released has several starts of one attempt. What one of them may have started, all may have.
void Outbox::spread_launching() {
  std::set<core::JobId> launching;
  for (const auto& [id, entry] : rows_) {
    if (is_start(entry.row) && entry.row.state == store::ActionState::kLaunching) launching.insert(entry.row.job);
  }
  for (auto& [id, entry] : rows_) {
    if (is_start(entry.row) && launching.contains(entry.row.job)) entry.row.state = store::ActionState::kLaunching;
  }
}

std::vector<Outbox::Row> Outbox::rows() const {
  std::vector<Row> all;
  std::lock_guard lock(mutex_);
  for (const auto& [id, entry] : rows_) all.push_back(entry.row);
  return all;
}

bool Outbox::is_busy(const Row& row) const {
  return is_start(row) && starting_.contains(row.job);
}

std::vector<Outbox::Row> Outbox::ready() const {
  std::vector<Row> found;
  std::set<core::JobId> held;
  const auto now = clock_.monotonic();
  std::lock_guard lock(mutex_);
  for (auto at = rows_.rbegin(); at != rows_.rend(); ++at) {
    const auto& entry = at->second;
    if (is_hold(entry.row) && !held.insert(entry.row.job).second) continue;
    if (!entry.under_way && now >= entry.not_before && !is_busy(entry.row)) found.push_back(entry.row);
  }
  std::ranges::reverse(found);
  return found;
}

Outbox::Entry* Outbox::find(std::int64_t id) {
  const auto found = rows_.find(id);
  return found == rows_.end() ? nullptr : &found->second;
}

bool Outbox::begin(Row& row) {
  std::lock_guard lock(mutex_);
  auto* entry = find(row.id);
  if (entry == nullptr || entry->under_way || is_busy(row)) return false;
  entry->under_way = true;
  row.state = entry->row.state;
  row.share = entry->row.share;
  if (is_start(row)) starting_.insert(row.job);
  return true;
}

void Outbox::end(const Row& row) {
  std::lock_guard lock(mutex_);
  if (auto* entry = find(row.id)) entry->under_way = false;
  if (is_start(row)) starting_.erase(row.job);
}

void Outbox::set_launching(const std::vector<store::LaunchingAction>& rows) {
  if (rows.empty()) return;
  store_.set_launching(rows);
  std::lock_guard lock(mutex_);
  for (const auto& [id, share] : rows) {
    auto* entry = find(id);
    if (entry == nullptr) continue;
    entry->row.state = store::ActionState::kLaunching;
    entry->row.share = share;
  }
  spread_launching();
}

bool Outbox::set_pending(Ids ids) {
  {
    std::lock_guard lock(mutex_);
    std::erase_if(ids, [&](std::int64_t id) {
      const auto* entry = find(id);
      return entry == nullptr || entry->row.state == store::ActionState::kPending;
    });
  }
  if (ids.empty()) return true;
  try {
    store_.set_actions(ids, store::ActionState::kPending);
    std::lock_guard lock(mutex_);
    for (const auto id : ids) {
      if (auto* entry = find(id)) entry->row.state = store::ActionState::kPending;
    }
    return true;
  } catch (const std::exception& error) {
    spdlog::warn("launches that did not happen cannot be written down yet: {}", error.what());
    return false;
  }
}

bool Outbox::tick_off(const Ids& ids, const std::string& what) {
  try {
    if (!ids.empty()) store_.complete_actions(ids);
  } catch (const std::exception& error) {
    spdlog::warn("{} cannot be ticked off yet: {}", what, error.what());
    return false;
  }
  std::lock_guard lock(mutex_);
  for (const auto id : ids) {
    rows_.erase(id);
    to_complete_.erase(id);
  }
  return true;
}

void Outbox::complete(const Ids& ids) {
  if (tick_off(ids, "finished actions")) return;
  std::lock_guard lock(mutex_);
  for (const auto id : ids) rows_.erase(id);
  to_complete_.insert(ids.begin(), ids.end());
}

bool Outbox::complete_hold(const Row& row) {
  Ids ids;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, entry] : rows_) {
      if (id <= row.id && entry.row.job == row.job && is_hold(entry.row)) ids.push_back(id);
    }
  }
  return tick_off(ids, "job " + std::to_string(row.job) + ": a hold");
}

void Outbox::complete_rest() {
  Ids ids;
  {
    std::lock_guard lock(mutex_);
    ids.assign(to_complete_.begin(), to_complete_.end());
  }
  complete(ids);
}

std::optional<core::Millis> Outbox::next_ready(core::Millis since) const {
  std::optional<core::Millis> next;
  std::lock_guard lock(mutex_);
  if (!to_complete_.empty()) next = since + kCompleteAgain;
  for (const auto& [id, entry] : rows_) {
    if (entry.under_way || entry.not_before <= since) continue;
    next = std::min(next.value_or(entry.not_before), entry.not_before);
  }
  return next;
}

void Outbox::pause(const Row& row, core::Millis pause) {
  std::lock_guard lock(mutex_);
  if (auto* entry = find(row.id)) entry->not_before = clock_.monotonic() + pause;
}

namespace {

// True if the folder that gave this error may take writes later.
bool may_heal(int error) {
  return error != EROFS && error != EACCES && error != EPERM && error != ENOTDIR && error != ENAMETOOLONG;
}

std::string folder_problem(const std::system_error& e) {
  const bool heals = may_heal(e.code().value());
  return std::string(e.what()) + (heals ? "" : "; make the folder writable or name another one in the job file");
}

}  // namespace

void Launches::perform(const std::vector<Outbox::Row>& batch) {
  std::vector<Launch> launches;
  for (const auto& row : batch) {
    launches.push_back({row, {row.job, std::get<core::StartAttempt>(row.action).attempt}, {}, {}, {}});
  }
  try {
    launch(launches);
  } catch (const std::exception& e) {
    spdlog::error("job {}: a launch failed and is tried again: {}", batch.front().job, e.what());
    for (auto& each : launches) each.later = executors::LaunchLater{.why = e.what(), .unsure = true};
  }
  finish(launches);
}

void Launches::launch(std::vector<Launch>& launches) {
  for (auto& each : launches) {
    try {
      prepare(each);
    } catch (const std::exception& e) {
      each = {each.row, each.key, {}, {}, executors::LaunchLater{.why = e.what(), .unsure = each.may_be_there()}};
    }
  }
  ask(launches);
  keep(launches);
}

void Launches::prepare(Launch& launch) {
  const auto& key = launch.key;
  const auto job = parts_.event_log.job(key.job);
  const bool upcoming = job != nullptr && core::is_upcoming(*job, key.number);
  if (job == nullptr || (!upcoming && key.number <= job->attempts.size())) return;
  if (was_stopped(key)) {
    if (is_left(key)) launch.answer = executors::LaunchLater{.why = {}, .unsure = true};
    return;
  }
  if (!upcoming || job->held) {
    if (launch.may_be_there()) launch.answer = look(key);
  } else if (!parts_.admission.has_slots(key.job)) {
    // It was held when it was judged.
    launch.answer = executors::LaunchLater{.why = {}, .pause = core::Millis(0), .unsure = launch.may_be_there()};
  } else {
    plan(*job, launch);
    if (launch.request || !launch.may_be_there()) return;
    if (auto there = look(key)) launch.answer = std::move(there);
  }
}

void Launches::plan(const core::Job& job, Launch& launch) {
  const auto& key = launch.key;
  const auto spec = parts_.specs.get(job.id);
  if (spec == nullptr) {
    launch.answer = core::AttemptLaunchFailed{key.number, "the job has no stored spec", false};
    return;
  }
  if (const auto owner = owner_of_folder(*spec, job.id)) {
    const auto other = std::to_string(*owner);
    launch.answer = executors::LaunchLater{
        "its checkpoint folder " + spec->checkpoint().folder() + " belongs to job " + other + ", which has not ended",
        executors::kTryAgainAfter,
        "It starts when job " + other + " has ended. To start it now: muster cancel " + other +
            ", or submit it with another checkpoint.folder.",
        launch.may_be_there()};
    return;
  }
  auto request = launch_request(*spec, key, settings_);
  request.time_limit = job.time_limit;  // people may have changed it
  request.share = parts_.admission.share(job.id);
  request.sweep = parts_.admission.limits(job).empty() ? job.sweep.sweep : std::string();
  parts_.partitions.equip(request);
  const bool may_wait = !request.sweep.empty() && may_prepare_later(*spec, key) && parts_.executor.prepares(request);
  try {
    may_wait ? prepare_later(*spec, settings_, request) : prepare_folders(*spec, key, settings_);
  } catch (const std::system_error& e) {
    const int error = e.code().value();
    if (base::lacks_room(error)) {
      launch.answer = executors::LaunchLater{e.what(), executors::kTryAgainAfter, common::make_room(error)};
    } else {
      launch.answer = core::AttemptLaunchFailed{key.number, folder_problem(e), may_heal(error)};
    }
    return;
  }
  launch.request = std::move(request);
}

std::optional<core::JobId> Launches::owner_of_folder(const muster::v1::JobSpec& spec, core::JobId job) const {
  const auto folder = fence_folder(spec, job, settings_.data);
  if (folder.empty() || spec.checkpoint().folder().empty()) return std::nullopt;
  const auto fence = read_fence(folder);
  if (!fence || fence->job == 0 || fence->job == job) return std::nullopt;
  // A copied folder, or one of another musterd, names a job that has a folder elsewhere here.
  const auto other = parts_.event_log.job(fence->job);
  if (other == nullptr || core::is_ended(other->state)) return std::nullopt;
  const auto its_spec = parts_.specs.get(other->id);
  if (its_spec == nullptr) return std::nullopt;
  std::error_code error;
  const bool same = std::filesystem::equivalent(fence_folder(*its_spec, other->id, settings_.data), folder, error);
  return same ? std::optional(other->id) : std::nullopt;
}

std::optional<executors::LaunchAnswer> Launches::look(const core::AttemptKey& key) {
  const auto spec = parts_.specs.get(key.job);
  return spec == nullptr ? std::nullopt : parts_.executor.withdraw(launch_request(*spec, key, settings_));
}

void Launches::ask(std::vector<Launch>& launches) {
  std::vector<Launch*> asked;
  std::vector<executors::LaunchRequest> requests;
  std::vector<store::LaunchingAction> rows;
  for (auto& each : launches) {
    if (!each.request) continue;
    asked.push_back(&each);
    requests.push_back(*std::exchange(each.request, std::nullopt));
    const auto& share = requests.back().share;
    if (!each.may_be_there() || each.row.share != share) rows.push_back({each.row.id, share});
  }
  if (asked.empty()) return;
  try {
    leave_out_lost_nodes(requests);
    outbox_.set_launching(rows);
  } catch (const std::exception& e) {
    for (auto* each : asked) each->answer = executors::LaunchLater{.why = e.what(), .unsure = each->may_be_there()};
    return;
  }
  if (asked.size() == 1) {
    asked.front()->answer = parts_.executor.launch(requests.front());
    return;
  }
  auto answers = parts_.executor.launch_all(requests);
  for (std::size_t i = 0; i < answers.size(); ++i) asked[i]->answer = std::move(answers[i]);
}

void Launches::keep(std::vector<Launch>& launches) {
  std::vector<std::pair<core::JobId, core::EventBody>> facts;
  std::vector<Launch*> of_facts;
  for (auto& each : launches) {
    if (!each.answer) continue;
    if (auto* later = std::get_if<executors::LaunchLater>(&*each.answer)) {
      if (parts_.executor.queue_word(each.key)) later->why.clear();
      each.later = std::move(*later);
      continue;
    }
    auto* fact = std::get_if<core::AttemptLaunched>(&*each.answer);
    each.later = executors::LaunchLater{.why = {}, .unsure = fact != nullptr};  // unless it is kept
    if (fact != nullptr) fact->share = parts_.admission.share(each.key.job);
    facts.emplace_back(each.key.job, fact != nullptr
                                         ? core::EventBody(std::move(*fact))
                                         : core::EventBody(std::get<core::AttemptLaunchFailed>(*each.answer)));
    of_facts.push_back(&each);
  }
  const auto kept = parts_.event_log.keep_and_wait(std::move(facts));
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (!kept[i]) continue;
    if (of_facts[i]->later->unsure && stop_unwanted(of_facts[i]->key)) continue;
    of_facts[i]->later.reset();
  }
}

// Its slots are free next. What stops it otherwise comes after those who may take them.
bool Launches::stop_unwanted(const core::AttemptKey& key) {
  const auto job = parts_.event_log.job(key.job);
  const auto spec = parts_.specs.get(key.job);
  if (job == nullptr || spec == nullptr || key.number <= job->attempts.size()) return false;
  parts_.executor.stop(key, {jobs::stop_grace(*spec, false)});
  return is_left(key);
}

bool Launches::was_stopped(const core::AttemptKey& key) const {
  const std::lock_guard lock(mutex_);
  return stopping_.contains(key);
}

bool Launches::is_left(const core::AttemptKey& key) {
  const bool is_there = parts_.executor.is_there(key);
  const std::lock_guard lock(mutex_);
  is_there ? void(stopping_.insert(key)) : void(stopping_.erase(key));
  return is_there;
}

void Launches::finish(const std::vector<Launch>& launches) {
  Outbox::Ids over, again;
  for (const auto& each : launches) {
    if (!each.later) over.push_back(each.row.id);
    if (each.later && !each.later->unsure) again.push_back(each.row.id);
  }
  const bool is_pending = outbox_.set_pending(again);
  outbox_.complete(over);
  for (const auto& [row, key, request, answer, later] : launches) {
    if (!later) {
      parts_.admission.forget(key);
    } else {
      parts_.admission.put_off(row.job, *later);
      if (later->unsure || !is_pending) {
        outbox_.pause(row, later->pause);
      } else {
        parts_.admission.settle(row.job);
      }
    }
    outbox_.end(row);
  }
}

executors::LostNodes Launches::nodes_lost_lately() const {
  executors::LostNodes nodes;
  for (const auto& event :
       parts_.store.node_losses(parts_.clock.wall() - parts_.excluded_for, executors::kMostExcluded)) {
    const auto& lost = std::get<core::NodeLost>(event.event.body);
    nodes.emplace_back(lost.node, lost.only_this_job ? event.job : 0);
  }
  return nodes;
}

void Launches::leave_out_lost_nodes(std::vector<executors::LaunchRequest>& requests) const {
  const auto lost = nodes_lost_lately();
  for (auto& request : requests) request.exclude_nodes = executors::kept_off(request.key.job, lost);
}

}  // namespace actions
