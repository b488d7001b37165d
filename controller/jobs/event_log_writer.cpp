// The writer's side of the event log: what waits is taken in groups, folded by core::apply, written in one transaction,
// published and answered. event_log.cpp has the callers' side.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <utility>

#include "controller/core/apply.h"
#include "controller/jobs/event_log.h"

namespace jobs {
namespace {

constexpr core::Millis kBackoffFirst{100};
constexpr core::Millis kBackoffMost{5000};
// Events are not dated before the one before them, unless the machine's clock was far wrong and has been set back.
constexpr core::Millis kSmoothed{1000};

// Writes an event into musterd's log. Arrivals of ranks and saves are frequent, so they are debug messages.
void log(const store::Commit& commit) {
  const auto& body = commit.event.body;
  const bool often =
      std::holds_alternative<core::RankJoined>(body) || std::holds_alternative<core::CheckpointSaved>(body);
  const auto& text = commit.applied->text;
  if (!text.empty())
    spdlog::log(often ? spdlog::level::debug : spdlog::level::info, "job {}: {}", commit.applied->job.id, text);
}

// A rank may have told before that the attempt has started, but a rank knows only its own node. Tasks know the node of
// each rank. The scheduler knows only which nodes the attempt has.
bool tells_nothing(const core::Attempt& attempt, const core::AttemptStarted& started) {
  if (attempt.state == core::AttemptState::kQueued) return false;
  if (attempt.state == core::AttemptState::kEnded) return true;
  for (std::size_t r = 0; r < attempt.ranks.size() && r < started.nodes.size(); ++r) {
    if (started.nodes[r].empty()) continue;
    if (attempt.ranks[r].node.empty()) return false;
    if (started.seen_there && attempt.ranks[r].node != started.nodes[r]) return false;
  }
  return true;
}

/// The subject of a fact besides its attempt: a rank, a node, a step or another job. Two facts of one kind with two
/// subjects are two facts. What may become known better, or be answered anew, is a subject, too: where the ranks are,
/// why an attempt stops, how Slurm answered a time limit.
std::string subject_of(const core::EventBody& body) {
  return std::visit(
      [](const auto& e) -> std::string {
        if constexpr (requires { e.rank; }) return std::to_string(e.rank);
        if constexpr (requires { e.node; }) return e.node;
        if constexpr (requires { e.job; }) return std::to_string(e.job);
        if constexpr (requires { e.step; }) return std::to_string(e.step);
        if constexpr (requires { e.seen_there; }) {
          std::string places = e.seen_there ? "seen" : "planned";
          for (const auto& node : e.nodes) places += "\n" + node;
          return places;
        }
        if constexpr (requires { e.refusal; }) return std::to_string(e.time_limit.count()) + e.refusal;
        if constexpr (requires { e.save; }) return std::string(core::to_string(e.cause));
        return {};
      },
      body);
}

/// True if the job's history holds the fact already. An executor tells a new controller what it told the one before.
bool known_already(const core::Job& job, const core::EventBody& body) {
  if (job.removed_at) return true;  // the fact changes nothing any more
  const auto number = core::attempt_of(body);
  if (number == 0 || number > job.attempts.size()) return false;
  const auto& attempt = job.attempts[number - 1];
  if (const auto* exited = std::get_if<core::RankExited>(&body)) {
    return exited->rank < attempt.ranks.size() && attempt.ranks[exited->rank].state == core::RankState::kExited;
  }
  if (std::holds_alternative<core::AttemptGone>(body)) return attempt.state == core::AttemptState::kEnded;
  if (const auto* started = std::get_if<core::AttemptStarted>(&body)) return tells_nothing(attempt, *started);
  if (const auto* stopping = std::get_if<core::AttemptStopping>(&body)) {
    return attempt.state == core::AttemptState::kEnded || attempt.cause == stopping->cause;
  }
  const bool handed_over = attempt.started_at.has_value() || attempt.queued_at.has_value();
  return std::holds_alternative<core::AttemptLaunched>(body) && handed_over;
}

/// True if the fact belongs to an attempt whose launch is not recorded yet. A rank may end before its launch is
/// recorded.
bool too_early(const core::Job& job, const core::EventBody& body) {
  if (core::is_ended(job.state)) return false;
  if (std::holds_alternative<core::AttemptLaunched>(body)) return false;
  if (std::holds_alternative<core::AttemptLaunchFailed>(body)) return false;
  return core::attempt_of(body) > job.attempts.size();
}

}  // namespace

// The commits of one transaction, and the answers that follow once they are durable.
struct EventLog::Group {
  std::vector<store::Commit> commits;
  std::vector<std::pair<Entry*, Result>> results;
  std::vector<Entry*> early;
  std::unordered_map<core::JobId, JobPtr> jobs;  // as they will be
  std::set<core::JobId> with_actions, changed;
  std::map<std::string, core::JobId> requests;
  core::JobId next_id = 0;
};

std::optional<EventLog::FactKey> EventLog::key_of(const Entry& entry) {
  const auto& body = entry.body;
  if (std::holds_alternative<core::AttemptSuspected>(body) || std::holds_alternative<core::SuspicionOver>(body)) {
    return std::nullopt;
  }
  return FactKey{entry.job, body.index(), core::attempt_of(body), subject_of(body)};
}

std::optional<core::Millis> EventLog::write_some() {
  pass();
  std::lock_guard lock(mutex_);
  if (work_waits()) return core::Millis(0);
  // Facts wait for a retry, whose time comes without anybody's call.
  return facts_.empty() ? std::nullopt : std::optional(kBackoffFirst);
}

// False if nothing waited.
bool EventLog::pass() {
  auto entries = take();
  if (!entries.empty()) write(entries);
  return !entries.empty();
}

std::vector<EventLog::Entry> EventLog::take() {
  std::vector<Entry> entries;
  std::lock_guard lock(mutex_);
  if (!work_waits()) return entries;
  const auto move_some = [&](std::deque<Entry>& from) {
    const auto count = static_cast<std::ptrdiff_t>(std::min(from.size(), kBatchLimit));
    std::move(from.begin(), from.begin() + count, std::back_inserter(entries));
    from.erase(from.begin(), from.begin() + count);
  };
  move_some(facts_);  // first, also when a person's request is what ends a backoff early: facts are older
  move_some(queue_);
  return entries;
}

void EventLog::write(std::vector<Entry>& entries) {
  Group group;
  try {
    for (auto& entry : entries) prepare(entry, group);
    commit(group);
  } catch (const store::Error& e) {
    if (e.kind() == store::Error::Kind::kFull) return refuse_or_put_back(entries, e.what());
    if (e.kind() == store::Error::Kind::kConflict) reload(entries);
    return write_one_by_one(entries);
  } catch (const std::exception& e) {
    return write_one_by_one(entries);
  }
  publish(group);
  settle(group);
}

// One bad entry must not hold up the others; those of its job wait behind it.
void EventLog::write_one_by_one(std::vector<Entry>& entries) {
  std::set<core::JobId> held_up;
  std::vector<Entry> failed;
  std::string why;
  for (auto& entry : entries) {
    if (entry.job != 0 && held_up.contains(entry.job)) {
      failed.push_back(std::move(entry));
      continue;
    }
    Group group;
    try {
      prepare(entry, group);
      commit(group);
    } catch (const std::exception& e) {
      why = e.what();
      if (entry.kind == Kind::kFact) held_up.insert(entry.job);
      failed.push_back(std::move(entry));
      continue;
    }
    publish(group);
    settle(group);
  }
  if (!failed.empty()) refuse_or_put_back(failed, why);
}

void EventLog::prepare(Entry& entry, Group& group) {
  if (!entry.submissions.empty()) return prepare_submit(entry, group);
  if (!entry.jobs.empty()) return prepare_all(entry, group);
  const JobPtr now = current(entry.job, group);
  const auto refuse = [&](common::Refusal why) { group.results.push_back({&entry, {.refusal = std::move(why)}}); };
  if (now == nullptr) return refuse(common::Refusal::no_job(entry.job));
  if (entry.kind == Kind::kRequest && now->removed_at)
    return refuse(common::Refusal::not_found(core::removed_text(*now)));
  if (auto why = core::refusal_text(*now, entry.body); !why.empty())
    return refuse(common::Refusal::wrong_state(std::move(why)));
  const bool is_fact = entry.kind == Kind::kFact, is_known = is_fact && known_already(*now, entry.body);
  if (is_fact && !is_known && too_early(*now, entry.body)) {
    group.early.push_back(&entry);
    return;
  }
  group.results.push_back({&entry, {.job = is_known ? now : add(*now, entry.body, group)}});
}

JobPtr EventLog::add(const core::Job& now, const core::EventBody& body, Group& group) {
  core::Event event{stamp(), body};
  const auto applied = store::shared(core::apply(now, event));
  const JobPtr after(applied, &applied->job);
  if (!applied->actions.empty()) group.with_actions.insert(now.id);
  group.commits.push_back({std::move(event), applied, {}, {}});
  group.jobs[now.id] = after;
  group.changed.insert(now.id);
  return after;
}

void EventLog::prepare_all(Entry& entry, Group& group) {
  Result result;
  for (const auto id : entry.jobs) {
    const JobPtr now = current(id, group);
    if (now == nullptr) continue;
    if (auto why = core::refusal_text(*now, entry.body); !why.empty()) {
      result.changed.refusals.push_back(std::move(why));
    } else {
      result.changed.jobs.push_back(add(*now, entry.body, group));
    }
  }
  group.results.push_back({&entry, std::move(result)});
}

void EventLog::prepare_submit(Entry& entry, Group& group) {
  const auto request_id = entry.submissions.front().request_id;
  const auto waiting = group.requests.find(request_id);
  const auto known = waiting != group.requests.end() ? std::optional(waiting->second) : store_.find_request(request_id);
  if (known) {
    group.results.push_back({&entry, {.submitted = {*known, true}}});
    return;
  }
  if (group.next_id == 0) group.next_id = next_id_ != 0 ? next_id_ : next_job_id();
  const auto first = group.next_id;
  group.commits.reserve(group.commits.size() + entry.submissions.size());
  for (auto& [body, own_request_id, spec_json] : entry.submissions) {
    if (entry.kind == Kind::kSubmitSweep) body.sweep.sweep = sweep_name(first);
    core::Job blank;
    blank.id = group.next_id++;
    add(blank, body, group);
    group.commits.back().spec_json = spec_json;
    if (blank.id == first) group.commits.back().request_id = request_id;
  }
  group.requests[request_id] = first;
  group.results.push_back({&entry, {.job = group.jobs[first], .submitted = {first, false}}});
}

JobPtr EventLog::current(core::JobId id, Group& group) {
  if (const auto found = group.jobs.find(id); found != group.jobs.end()) return found->second;
  return jobs_.get(id);
}

void EventLog::commit(Group& group) {
  if (group.commits.empty()) return;
  {
    const common::Hearing::Write under_way(hearing_);
    store_.append(group.commits);
  }
  note_success();
  for (const auto& commit : group.commits) log(commit);
  if (group.next_id != 0) next_id_ = group.next_id;
}

void EventLog::publish(Group& group) {
  for (const auto id : group.changed) jobs_.put(group.jobs[id]);
  for (const auto id : group.changed) publish_(group.jobs[id], group.with_actions.contains(id));
}

void EventLog::settle(Group& group) {
  for (auto* entry : group.early) early_[entry->job].push_back(std::move(*entry));
  for (const auto id : group.changed) release_early(group.jobs[id]);
  {
    std::lock_guard lock(mutex_);
    for (const auto& [entry, result] : group.results) {
      if (entry->kind != Kind::kFact) continue;
      if (const auto key = key_of(*entry)) known_facts_.erase(*key);
    }
  }
  for (auto& [entry, result] : group.results) {
    if (entry->kind == Kind::kFact && result.refusal) {
      spdlog::warn("{} for a job that does not exist: {}", core::type_name(entry->body), entry->job);
    }
    entry->answer->promise.set_value(std::move(result));
  }
}

void EventLog::refuse_or_put_back(std::vector<Entry>& entries, const std::string& why) {
  note_failure(why);
  {
    std::lock_guard lock(mutex_);
    for (const auto& entry : entries) {
      if (entry.kind != Kind::kReport) continue;
      if (const auto key = key_of(entry)) known_reports_.erase(*key);
    }
    if (!closed_) {
      for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
        if (entry->kind == Kind::kFact) facts_.push_front(std::move(*entry));
      }
    }
  }
  for (auto& entry : entries) {
    if (entry.answer != nullptr) entry.answer->promise.set_value({.refusal = unchanged(why)});
  }
}

void EventLog::note_failure(const std::string& why) {
  std::lock_guard lock(mutex_);
  if (!failing_) spdlog::error("the store takes no writes: {}", why);
  backoff_ = failing_ ? std::min(backoff_ * 2, kBackoffMost) : kBackoffFirst;
  failing_ = true;
  problem_ = why;
  failed_at_ = clock_.monotonic();
  retry_at_ = failed_at_ + backoff_;
}

void EventLog::note_success() {
  std::lock_guard lock(mutex_);
  if (failing_) spdlog::info("the store takes writes again");
  failing_ = false;
  retry_at_ = core::Millis(0);
}

// Somebody else wrote: what the store says is true.
void EventLog::reload(std::span<const Entry> entries) {
  next_id_ = 0;
  std::set<core::JobId> touched;
  for (const auto& entry : entries) {
    touched.insert(entry.job);
    touched.insert(entry.jobs.begin(), entry.jobs.end());
  }
  touched.erase(0);
  for (const auto id : touched) jobs_.reload(id);
}

// Puts facts whose time has come in front of those that came after them.
void EventLog::release_early(const JobPtr& job) {
  const auto held = early_.find(job->id);
  if (held == early_.end()) return;
  auto& entries = held->second;
  std::lock_guard lock(mutex_);
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (!closed_ && !too_early(*job, entry->body)) facts_.push_front(std::move(*entry));
  }
  std::erase_if(entries, [](const Entry& entry) { return entry.answer == nullptr; });
  if (entries.empty()) early_.erase(held);
}

core::Time EventLog::stamp() {
  const auto wall = clock_.wall();
  if (wall > last_time_ || last_time_ - wall > kSmoothed) last_time_ = wall;
  return last_time_;
}

}  // namespace jobs
