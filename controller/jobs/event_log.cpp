#include "controller/jobs/event_log.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "controller/core/apply.h"

namespace jobs {
namespace {

// A failure that nobody repeated is told for this long; afterwards the store may well be fine again.
constexpr core::Millis kProblemTold{30000};
constexpr core::Millis kPeoplePatience{30'000};

constexpr const char* kNoAnswer = "the store did not answer in time; it may still be carried out";
constexpr const char* kShutDown = "musterd is shutting down; try again when it is back";
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

std::string sweep_name(core::JobId first) {
  return "s" + std::to_string(first);
}

EventLog::EventLog(store::Store& store, common::Clock& clock, common::Hearing& hearing, Publish publish, bool threads)
    : store_(store),
      jobs_(store),
      clock_(clock),
      hearing_(hearing),
      publish_(std::move(publish)),
      threads_(threads),
      loop_("events", "what waits for the store could not be written", threads, [this] { return write_some(); }) {
  loop_.start();
}

template <typename Part>
common::Outcome<Part> EventLog::outcome_of(Result result, Part Result::*part) {
  if (result.refusal) return *std::move(result.refusal);
  return std::move(result.*part);
}

common::Outcome<EventLog::Submitted> EventLog::submit(Submission submission) {
  Entry entry{.kind = Kind::kSubmit};
  entry.submissions.push_back(std::move(submission));
  return outcome_of(ask_people(std::move(entry)), &Result::submitted);
}

common::Outcome<EventLog::Submitted> EventLog::submit_sweep(std::vector<Submission> submissions) {
  return outcome_of(ask_people({.kind = Kind::kSubmitSweep, .submissions = std::move(submissions)}),
                    &Result::submitted);
}

common::Outcome<JobPtr> EventLog::request(core::JobId job, core::EventBody body) {
  return outcome_of(ask_people({.kind = Kind::kRequest, .job = job, .body = std::move(body)}), &Result::job);
}

common::Outcome<EventLog::Changed> EventLog::request_all(std::vector<core::JobId> jobs, core::EventBody body) {
  return outcome_of(ask_people({.kind = Kind::kRequest, .body = std::move(body), .jobs = std::move(jobs)}),
                    &Result::changed);
}

common::Outcome<JobPtr> EventLog::report(core::JobId job, core::EventBody body) {
  const auto patience = hearing_.is_slow() ? core::Millis(0) : common::Hearing::kPatience;
  Entry entry{.kind = Kind::kReport, .job = job, .body = std::move(body)};
  const auto key = fact_key(entry.job, entry.body);
  const auto future = enqueue(std::move(entry));
  if (!threads_) pump();
  if (future.wait_for(patience) != std::future_status::ready) return common::Refusal::unavailable(kNoAnswer);
  {
    std::lock_guard lock(mutex_);
    if (key) known_reports_.erase(*key);
  }
  return outcome_of(future.get(), &Result::job);
}

std::vector<bool> EventLog::keep_and_wait(std::vector<std::pair<core::JobId, core::EventBody>> facts) {
  std::vector<std::shared_future<Result>> futures;
  for (auto& [job, body] : facts) futures.push_back(enqueue({.job = job, .body = std::move(body)}));
  if (!threads_) pump();
  std::vector<bool> kept;
  for (const auto& future : futures) {
    const bool known = threads_ || future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    kept.push_back(known && !future.get().refusal.has_value());
  }
  return kept;
}

// Who asks has seen the answer before anything is done, or knows that it may be done later: not both.
EventLog::Result EventLog::ask_people(Entry entry) {
  if (const auto why = stands_still(); !why.empty()) return {.refusal = unchanged(why)};
  const auto future = enqueue(std::move(entry));
  if (!threads_) pump();
  if (future.wait_for(kPeoplePatience) != std::future_status::ready)
    return {.refusal = common::Refusal::unavailable(kNoAnswer)};
  return future.get();
}

std::string EventLog::stands_still() const {
  const auto since = hearing_.stuck_since();
  if (!since) return {};
  const auto waited = clock_.monotonic() - *since;
  return "the disk of the data folder stands still: no write has come back since " +
         common::time_text(clock_.wall() - waited) + " (" + std::to_string(waited.count() / 1000) +
         " s); running jobs go on, new ones and changes are refused until it does; if it stays so, look at the file "
         "system (dmesg, the NFS server)";
}

std::shared_future<EventLog::Result> EventLog::enqueue(Entry entry) {
  const auto answer = entry.answer = std::make_shared<Answer>();
  const bool is_fact = entry.kind == Kind::kFact;
  const auto key = is_fact || entry.kind == Kind::kReport ? fact_key(entry.job, entry.body) : std::nullopt;
  {
    std::lock_guard lock(mutex_);
    auto& known = is_fact ? known_facts_ : known_reports_;
    const auto same = key ? known.find(*key) : known.end();
    if (same != known.end()) return same->second->future;
    if (closed_) {
      answer->promise.set_value({.refusal = common::Refusal::unavailable(kShutDown)});
    } else if (!is_fact && queue_.size() >= kQueueLimit) {
      answer->promise.set_value(
          {.refusal = common::Refusal::unavailable("too many requests are waiting; try again in a moment")});
    } else {
      if (!is_fact) forget_old_reports();
      if (key) known.emplace(*key, answer);
      (is_fact ? facts_ : queue_).push_back(std::move(entry));
    }
  }
  loop_.wake();
  return answer->future;
}

// Reports are known until their answers are fetched: a rank that was not answered in time tells it again, and it must
// not be written twice. Ranks that have ended never fetch theirs.
void EventLog::forget_old_reports() {
  if (known_reports_.size() < kQueueLimit) return;
  std::erase_if(known_reports_, [](const auto& known) {
    return known.second->future.wait_for(core::Millis(0)) == std::future_status::ready;
  });
}

std::string EventLog::problem() const {
  if (auto why = stands_still(); !why.empty()) return why;
  std::lock_guard lock(mutex_);
  const bool told = failing_ && (!facts_.empty() || clock_.monotonic() - failed_at_ < kProblemTold);
  return told ? problem_ : std::string();
}

void EventLog::pump() {
  // Ends: requests are answered either way, and facts that fail wait for their backoff.
  while (pass()) {
  }
}

void EventLog::drain() {
  if (threads_) {
    {
      std::lock_guard lock(mutex_);
      if (closed_) return;
      closed_ = true;
    }
    loop_.close();
  }
  {
    std::lock_guard lock(mutex_);
    retry_at_ = core::Millis(0);
  }
  pump();
  close();
}

void EventLog::close() {
  std::deque<Entry> left;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    left.swap(queue_);
    std::move(facts_.begin(), facts_.end(), std::back_inserter(left));
    facts_.clear();
    known_facts_.clear();
    known_reports_.clear();
  }
  loop_.stop();
  for (auto& entry : left) {
    entry.answer->promise.set_value({.refusal = common::Refusal::unavailable(kShutDown)});
  }
}

// The writer. What waits is taken in groups, folded by core::apply, written in one transaction, published and answered.

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
  const bool is_fact = entry.kind == Kind::kFact, is_known = is_fact && is_known_fact(*now, entry.body);
  if (is_fact && !is_known && is_early_fact(*now, entry.body)) {
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
      if (const auto key = fact_key(entry->job, entry->body)) known_facts_.erase(*key);
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
      if (const auto key = fact_key(entry.job, entry.body)) known_reports_.erase(*key);
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
    if (!closed_ && !is_early_fact(*job, entry->body)) facts_.push_front(std::move(*entry));
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
