#include "actions/launches.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/room.h"
#include "jobs/spec_values.h"

namespace actions {
namespace {

// Whether the same folder may take writes later.
bool may_heal(int error) {
  return error != EROFS && error != EACCES && error != EPERM && error != ENOTDIR && error != ENAMETOOLONG;
}

std::string folder_problem(const std::system_error& e) {
  const bool heals = may_heal(e.code().value());
  return std::string(e.what()) + (heals ? "" : "; make the folder writable or name another one in the job file");
}

core::AttemptKey key_of(const Outbox::Row& row) {
  return {row.job, std::get<core::StartAttempt>(row.action).attempt};
}

bool may_be_there(const Outbox::Row& row) {
  return row.state == store::ActionState::kLaunching;
}

}  // namespace

void Launches::perform(const std::vector<Outbox::Row>& batch) {
  Results results(batch.size());
  try {
    results = launch(batch);
  } catch (const std::exception& e) {
    spdlog::error("job {}: a launch failed and is tried again: {}", batch.front().job, e.what());
    for (auto& result : results) result = executors::LaunchLater{.why = e.what(), .unsure = true};
  }
  finish(batch, results);
}

Launches::Results Launches::launch(const std::vector<Outbox::Row>& batch) {
  Results results(batch.size());
  std::vector<executors::LaunchRequest> requests;
  std::vector<std::size_t> places;  // of the requests, in the batch
  std::vector<std::pair<std::size_t, executors::LaunchAnswer>> answers;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    try {
      auto prepared = prepare(batch[i]);
      if (auto* request = std::get_if<executors::LaunchRequest>(&prepared)) {
        requests.push_back(std::move(*request));
        places.push_back(i);
      } else if (auto* answer = std::get_if<executors::LaunchAnswer>(&prepared)) {
        answers.emplace_back(i, std::move(*answer));
      }
    } catch (const std::exception& e) {
      results[i] = executors::LaunchLater{.why = e.what(), .unsure = may_be_there(batch[i])};
    }
  }
  auto launched = ask(batch, places, requests);
  for (std::size_t i = 0; i < launched.size(); ++i) answers.emplace_back(places[i], std::move(launched[i]));
  keep(batch, std::move(answers), results);
  return results;
}

std::variant<std::monostate, executors::LaunchRequest, executors::LaunchAnswer> Launches::prepare(
    const Outbox::Row& row) {
  const auto key = key_of(row);
  const auto job = parts_.event_log.job(key.job);
  const bool upcoming = job != nullptr && core::is_upcoming(*job, key.number);
  if (job == nullptr || (!upcoming && key.number <= job->attempts.size())) return {};
  if (!upcoming || job->held) {
    auto answer = may_be_there(row) ? look(key) : std::nullopt;
    if (!answer) return {};
    return *std::move(answer);
  }
  // It was held when it was judged.
  if (!parts_.admission.has_slots(key.job)) {
    return executors::LaunchAnswer(
        executors::LaunchLater{.why = {}, .pause = core::Millis(0), .unsure = may_be_there(row)});
  }
  auto planned = plan(*job, key.number);
  if (auto* request = std::get_if<executors::LaunchRequest>(&planned)) return std::move(*request);
  if (may_be_there(row)) {
    if (auto answer = look(key)) return *std::move(answer);
  }
  if (auto* later = std::get_if<executors::LaunchLater>(&planned)) return executors::LaunchAnswer(std::move(*later));
  return executors::LaunchAnswer(std::move(std::get<core::AttemptLaunchFailed>(planned)));
}

std::variant<executors::LaunchRequest, core::AttemptLaunchFailed, executors::LaunchLater> Launches::plan(
    const core::Job& job, core::AttemptNumber attempt) {
  const core::AttemptKey key{job.id, attempt};
  const auto spec = parts_.specs.get(job.id);
  if (spec == nullptr) return core::AttemptLaunchFailed{attempt, "the job has no stored spec", false};
  try {
    prepare_folders(*spec, key, settings_);
  } catch (const std::system_error& e) {
    if (os::lacks_room(e.code().value()))
      return executors::LaunchLater{e.what(), executors::kTryAgainAfter, base::make_room(e.code().value())};
    return core::AttemptLaunchFailed{attempt, folder_problem(e), may_heal(e.code().value())};
  }
  auto request = launch_request(*spec, key, settings_);
  request.time_limit = job.time_limit;  // people may have changed it
  request.sweep = parts_.admission.limits(job).empty() ? job.sweep.sweep : std::string();
  parts_.partitions.equip(request);
  return request;
}

std::optional<executors::LaunchAnswer> Launches::look(const core::AttemptKey& key) {
  const auto spec = parts_.specs.get(key.job);
  return spec == nullptr ? std::nullopt : parts_.executor.withdraw(launch_request(*spec, key, settings_));
}

std::vector<executors::LaunchAnswer> Launches::ask(const std::vector<Outbox::Row>& batch,
                                                   const std::vector<std::size_t>& places,
                                                   std::vector<executors::LaunchRequest>& requests) {
  if (requests.empty()) return {};
  std::vector<executors::LaunchAnswer> answers;
  try {
    leave_out_lost_nodes(requests);
    Outbox::Ids ids;
    for (const auto place : places) {
      if (!may_be_there(batch[place])) ids.push_back(batch[place].id);
    }
    outbox_.set_launching(ids);
  } catch (const std::exception& e) {
    for (const auto place : places)
      answers.emplace_back(executors::LaunchLater{.why = e.what(), .unsure = may_be_there(batch[place])});
    return answers;
  }
  if (requests.size() == 1) return {parts_.executor.launch(requests.front())};
  return parts_.executor.launch_all(requests);
}

void Launches::keep(const std::vector<Outbox::Row>& batch,
                    std::vector<std::pair<std::size_t, executors::LaunchAnswer>> answers, Results& results) {
  std::vector<std::pair<core::JobId, core::EventBody>> facts;
  std::vector<std::pair<std::size_t, bool>> of_facts;  // whose, and whether there is an attempt now
  for (auto& [place, answer] : answers) {
    const auto key = key_of(batch[place]);
    if (auto* later = std::get_if<executors::LaunchLater>(&answer)) {
      if (parts_.executor.queue_word(key)) later->why.clear();
      results[place] = std::move(*later);
      continue;
    }
    auto* fact = std::get_if<core::AttemptLaunched>(&answer);
    results[place] = executors::LaunchLater{.why = {}, .unsure = fact != nullptr};  // unless it is kept
    facts.emplace_back(key.job, fact != nullptr ? core::EventBody(std::move(*fact))
                                                : core::EventBody(std::get<core::AttemptLaunchFailed>(answer)));
    of_facts.emplace_back(place, results[place]->unsure);
  }
  const auto kept = parts_.event_log.keep_all_and_wait(std::move(facts));
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const auto [place, is_there] = of_facts[i];
    if (!kept[i]) continue;
    results[place].reset();
    if (is_there) stop_unwanted(key_of(batch[place]));
  }
}

// Its slots are free next. What stops it otherwise comes after those who may take them.
void Launches::stop_unwanted(const core::AttemptKey& key) {
  const auto job = parts_.event_log.job(key.job);
  const auto spec = parts_.specs.get(key.job);
  if (job == nullptr || spec == nullptr || key.number <= job->attempts.size()) return;
  parts_.executor.stop(key, {jobs::stop_grace(*spec, false)});
}

void Launches::finish(const std::vector<Outbox::Row>& batch, const Results& results) {
  Outbox::Ids over, again;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (!results[i]) {
      over.push_back(batch[i].id);
    } else if (!results[i]->unsure) {
      again.push_back(batch[i].id);
    }
  }
  const bool is_pending = outbox_.set_pending(again);
  outbox_.complete(over);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto& row = batch[i];
    if (!results[i]) {
      parts_.admission.forget(row.job);
    } else {
      parts_.admission.put_off(row.job, *results[i]);
      if (results[i]->unsure || !is_pending) {
        outbox_.pause(row, results[i]->pause);
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
