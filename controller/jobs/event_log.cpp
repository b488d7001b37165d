#include "jobs/event_log.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>

#include "base/time_text.h"

namespace runtime {
namespace {

constexpr core::Millis kBackoffFirst{100};
constexpr core::Millis kBackoffMost{5000};
// A failure that nobody repeated is told for this long; afterwards the store may well be fine again.
constexpr core::Millis kProblemTold{30000};
// Events are not dated before the one before them, unless the machine's clock was far wrong and has been set back.
constexpr core::Millis kSmoothed{1000};
constexpr core::Millis kPeoplePatience{30'000};

Refusal unavailable(const std::string& why) {
  return {Refusal::Kind::kUnavailable, why};
}

// The rank, node or other job that a fact is about: each is a fact of its own.
std::string subject_of(const core::EventBody& body) {
  return std::visit(
      [](const auto& e) -> std::string {
        if constexpr (requires { e.rank; }) return std::to_string(e.rank);
        if constexpr (requires { e.node; }) return e.node;
        if constexpr (requires { e.job; }) return std::to_string(e.job);
        if constexpr (requires { e.step; }) return std::to_string(e.step);
        return {};
      },
      body);
}

std::string refusal_of(const core::Job& job, const core::EventBody& body) {
  if (std::holds_alternative<core::CancelRequested>(body)) return core::refuse_cancel(job);
  if (std::holds_alternative<core::RequeueRequested>(body)) return core::refuse_requeue(job);
  if (std::holds_alternative<core::HoldRequested>(body)) return core::refuse_hold(job);
  if (std::holds_alternative<core::ReleaseRequested>(body)) return core::refuse_release(job);
  if (std::holds_alternative<core::TimeLimitChanged>(body)) return core::refuse_time_limit(job);
  if (std::holds_alternative<core::JobRemoved>(body)) return core::refuse_remove(job);
  return {};
}

// A rank may have said before that the attempt has started, but only of its own node. Tasks know theirs, where the
// scheduler only knows which nodes there are.
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

// What becomes of jobs and attempts, for whoever reads musterd's log; each rank's arrival and each save are many.
void log(const store::Commit& commit) {
  const auto& body = commit.event.body;
  const bool often =
      std::holds_alternative<core::RankJoined>(body) || std::holds_alternative<core::CheckpointSaved>(body);
  const auto& text = commit.applied->text;
  if (!text.empty())
    spdlog::log(often ? spdlog::level::debug : spdlog::level::info, "job {}: {}", commit.applied->job.id, text);
}

// Executors tell again what they told an earlier controller; the history needs it once.
bool known_already(const core::Job& job, const core::EventBody& body) {
  if (job.removed_at) return true;  // nobody asks any more
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

}  // namespace

std::string sweep_name(core::JobId first) {
  return "s" + std::to_string(first);
}

// Commits that go into one transaction, and what to answer once they are durable.
struct EventLog::Group {
  std::vector<store::Commit> commits;
  std::vector<std::pair<Entry*, Result>> results;
  std::vector<Entry*> early;
  std::unordered_map<core::JobId, JobPtr> jobs;  // as they will be
  std::set<core::JobId> with_actions, changed;
  std::map<std::string, core::JobId> requests;
  core::JobId next_id = 0;
};

EventLog::EventLog(store::Store& store, Clock& clock, Hearing& hearing, Publish publish, bool threads)
    : store_(store), clock_(clock), hearing_(hearing), publish_(std::move(publish)), threads_(threads) {
  if (threads_) thread_ = std::thread([this] { run(); });
}

EventLog::~EventLog() {
  close();
  if (thread_.joinable()) thread_.join();
}

Outcome<EventLog::Submitted> EventLog::submit(Submission submission) {
  Entry entry{
      Kind::kSubmit, 0, std::move(submission.body), std::move(submission.request_id), std::move(submission.spec_json),
      nullptr};
  const Result result = ask_people(std::move(entry));
  if (result.refusal) return *result.refusal;
  return result.submitted;
}

Outcome<EventLog::Submitted> EventLog::submit_sweep(std::vector<Submission> submissions) {
  Entry entry{Kind::kSubmit, 0, {}, submissions.front().request_id, {}, nullptr};
  entry.sweep = std::move(submissions);
  const Result result = ask_people(std::move(entry));
  if (result.refusal) return *result.refusal;
  return result.submitted;
}

Outcome<JobPtr> EventLog::request(core::JobId job, core::EventBody body) {
  const Result result = ask_people({Kind::kRequest, job, std::move(body), {}, {}, nullptr});
  if (result.refusal) return *result.refusal;
  return result.job;
}

Outcome<EventLog::Changed> EventLog::request_all(std::vector<core::JobId> jobs, core::EventBody body) {
  Entry entry{Kind::kRequest, 0, std::move(body), {}, {}, nullptr};
  entry.jobs = std::move(jobs);
  Result result = ask_people(std::move(entry));
  if (result.refusal) return *result.refusal;
  return std::move(result.changed);
}

Outcome<JobPtr> EventLog::report(core::JobId job, core::EventBody body) {
  const auto patience = hearing_.is_slow() ? core::Millis(0) : Hearing::kPatience;
  Entry entry{Kind::kReport, job, std::move(body), {}, {}, nullptr};
  const auto key = key_of(entry);
  const auto future = enqueue(std::move(entry));
  if (!threads_) pump();
  if (future.wait_for(patience) != std::future_status::ready) {
    return unavailable("the store did not answer in time; it may still be carried out");
  }
  const Result result = future.get();
  {
    std::lock_guard lock(mutex_);
    known_reports_.erase(key);
  }
  if (result.refusal) return *result.refusal;
  return result.job;
}

void EventLog::keep(core::JobId job, core::EventBody body) {
  keep_entry(job, std::move(body));
}

bool EventLog::keep_and_wait(core::JobId job, core::EventBody body) {
  return keep_all_and_wait({{job, std::move(body)}}).front();
}

EventLog::FactKey EventLog::key_of(const Entry& entry) {
  return {entry.job, entry.body.index(), core::attempt_of(entry.body), subject_of(entry.body)};
}

std::vector<bool> EventLog::keep_all_and_wait(std::vector<std::pair<core::JobId, core::EventBody>> facts) {
  std::vector<std::shared_future<Result>> futures;
  for (auto& [job, body] : facts) futures.push_back(keep_entry(job, std::move(body))->future);
  if (!threads_) pump();
  std::vector<bool> kept;
  for (const auto& future : futures) {
    const bool known = threads_ || future.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    kept.push_back(known && !future.get().refusal.has_value());
  }
  return kept;
}

std::shared_ptr<EventLog::Answer> EventLog::keep_entry(core::JobId job, core::EventBody body) {
  Entry entry{Kind::kFact, job, std::move(body), {}, {}, std::make_shared<Answer>()};
  auto answer = entry.answer;
  {
    std::lock_guard lock(mutex_);
    if (closed_) {
      answer->promise.set_value({nullptr, {}, unavailable("musterd is shutting down")});
      return answer;
    }
    const auto [known, fresh] = known_facts_.try_emplace(key_of(entry), answer);
    if (!fresh) return known->second;
    facts_.push_back(std::move(entry));
  }
  wake_.notify_one();
  return answer;
}

// Who asks has seen the answer before anything is done, or knows that it may be done later: not both.
EventLog::Result EventLog::ask_people(Entry entry) {
  if (const auto why = stands_still(); !why.empty()) {
    return {nullptr, {}, Refusal{Refusal::Kind::kUnchanged, "nothing was changed: " + why}};
  }
  return ask(std::move(entry), kPeoplePatience);
}

std::string EventLog::stands_still() const {
  const auto since = hearing_.stuck_since();
  if (!since) return {};
  const auto waited = clock_.monotonic() - *since;
  return "the disk of the data folder stands still: no write has come back since " + time_text(clock_.wall() - waited) +
         " (" + std::to_string(waited.count() / 1000) +
         " s); running jobs go on, new ones and changes are refused until it does; if it stays so, look at the file "
         "system (dmesg, the NFS server)";
}

EventLog::Result EventLog::ask(Entry entry, core::Millis patience) {
  const auto future = enqueue(std::move(entry));
  if (!threads_) pump();
  if (future.wait_for(patience) != std::future_status::ready) {
    return {nullptr, {}, unavailable("the store did not answer in time; it may still be carried out")};
  }
  return future.get();
}

std::shared_future<EventLog::Result> EventLog::enqueue(Entry entry) {
  entry.answer = std::make_shared<Answer>();
  auto answer = entry.answer;
  {
    std::lock_guard lock(mutex_);
    const bool is_report = entry.kind == Kind::kReport;
    const auto known = is_report ? known_reports_.find(key_of(entry)) : known_reports_.end();
    if (known != known_reports_.end()) return known->second->future;
    if (closed_) {
      answer->promise.set_value({nullptr, {}, unavailable("musterd is shutting down; try again when it is back")});
    } else if (queue_.size() >= kQueueLimit) {
      answer->promise.set_value({nullptr, {}, unavailable("too many requests are waiting; try again in a moment")});
    } else {
      if (is_report) remember_report(entry);
      queue_.push_back(std::move(entry));
    }
  }
  wake_.notify_one();
  return answer->future;
}

// Until its answer is fetched: a rank that was not answered in time tells it again, and it must not be written twice.
// Ranks that have ended never fetch theirs.
void EventLog::remember_report(const Entry& entry) {
  if (known_reports_.size() >= kQueueLimit) {
    std::erase_if(known_reports_, [](const auto& known) {
      return known.second->future.wait_for(core::Millis(0)) == std::future_status::ready;
    });
  }
  known_reports_.emplace(key_of(entry), entry.answer);
}

JobPtr EventLog::job(core::JobId id) const {
  {
    std::lock_guard lock(jobs_mutex_);
    if (const auto found = jobs_.find(id); found != jobs_.end()) return found->second;
  }
  auto loaded = store_.load(id);
  return loaded ? std::make_shared<const core::Job>(std::move(*loaded)) : nullptr;
}

std::vector<JobPtr> EventLog::open_jobs() const {
  std::vector<JobPtr> open;
  std::lock_guard lock(jobs_mutex_);
  for (const auto& [id, job] : jobs_) {
    if (!core::is_ended(job->state)) open.push_back(job);
  }
  std::sort(open.begin(), open.end(), [](const JobPtr& a, const JobPtr& b) { return a->id < b->id; });
  return open;
}

void EventLog::load_open() {
  for (auto& job : store_.load_open()) {
    std::lock_guard lock(jobs_mutex_);
    // try_emplace: a change made since the read is newer.
    jobs_.try_emplace(job.id, std::make_shared<const core::Job>(job));
  }
}

core::JobId EventLog::next_job_id() const {
  return std::max(store_.next_job_id(), begin_after_ + 1);
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
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
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
  wake_.notify_all();
  for (auto& entry : left) {
    entry.answer->promise.set_value({nullptr, {}, unavailable("musterd is shutting down; try again when it is back")});
  }
}

void EventLog::run() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      // The time limit serves retries, whose time comes without anyone's call.
      while (!closed_ && !work_waits()) wake_.wait_for(lock, kBackoffFirst);
      if (closed_) return;
    }
    pass();
  }
}

bool EventLog::work_waits() const {
  return !queue_.empty() || (!facts_.empty() && clock_.monotonic() >= retry_at_);
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
  if (entry.kind == Kind::kSubmit) return prepare_submit(entry, group);
  if (!entry.jobs.empty()) return prepare_all(entry, group);
  const JobPtr now = current(entry.job, group);
  if (now == nullptr) {
    Refusal refusal{Refusal::Kind::kNotFound, "there is no job " + std::to_string(entry.job)};
    group.results.push_back({&entry, {nullptr, {}, refusal}});
    return;
  }
  if (entry.kind == Kind::kRequest && now->removed_at) {
    group.results.push_back({&entry, {nullptr, {}, Refusal{Refusal::Kind::kNotFound, core::removed_text(*now)}}});
    return;
  }
  if (const auto why = refusal_of(*now, entry.body); !why.empty()) {
    group.results.push_back({&entry, {now, {}, Refusal{Refusal::Kind::kWrongState, why}}});
    return;
  }
  if (entry.kind == Kind::kFact && known_already(*now, entry.body)) {
    group.results.push_back({&entry, {now, {}, std::nullopt}});
    return;
  }
  if (too_early(entry, *now)) {
    group.early.push_back(&entry);
    return;
  }
  group.results.push_back({&entry, {add(*now, entry.body, group), {}, std::nullopt}});
}

JobPtr EventLog::add(const core::Job& now, const core::EventBody& body, Group& group) {
  const core::Event event{stamp(), body};
  const auto applied = store::shared(core::apply(now, event));
  const JobPtr after(applied, &applied->job);
  if (!applied->actions.empty()) group.with_actions.insert(now.id);
  group.commits.push_back({event, applied, {}, {}});
  group.jobs[now.id] = after;
  group.changed.insert(now.id);
  return after;
}

void EventLog::prepare_all(Entry& entry, Group& group) {
  Result result;
  for (const auto id : entry.jobs) {
    const JobPtr now = current(id, group);
    if (now == nullptr) continue;
    if (auto why = refusal_of(*now, entry.body); !why.empty()) {
      result.changed.refusals.push_back(std::move(why));
    } else {
      result.changed.jobs.push_back(add(*now, entry.body, group));
    }
  }
  group.results.push_back({&entry, std::move(result)});
}

void EventLog::prepare_submit(Entry& entry, Group& group) {
  const auto waiting = group.requests.find(entry.request_id);
  const auto known =
      waiting != group.requests.end() ? std::optional(waiting->second) : store_.find_request(entry.request_id);
  if (known) {
    group.results.push_back({&entry, {nullptr, {*known, true}, std::nullopt}});
    return;
  }
  if (group.next_id == 0) group.next_id = next_id_ != 0 ? next_id_ : next_job_id();
  const auto first = group.next_id;
  if (entry.sweep.empty()) {
    prepare_new(std::get<core::JobSubmitted>(entry.body), entry.request_id, entry.spec_json, group);
  }
  for (std::size_t i = 0; i < entry.sweep.size(); ++i) {
    auto& submission = entry.sweep[i];
    submission.body.sweep.sweep = sweep_name(first);
    prepare_new(submission.body, i == 0 ? entry.request_id : std::string(), submission.spec_json, group);
  }
  group.requests[entry.request_id] = first;
  group.results.push_back({&entry, {group.jobs[first], {first, false}, std::nullopt}});
}

void EventLog::prepare_new(core::JobSubmitted body, const std::string& request_id, const std::string& spec_json,
                           Group& group) {
  core::Job blank;
  blank.id = group.next_id++;
  const core::Event event{stamp(), std::move(body)};
  const auto applied = store::shared(core::apply(std::move(blank), event));
  const JobPtr after(applied, &applied->job);
  if (!applied->actions.empty()) group.with_actions.insert(after->id);
  group.commits.push_back({event, applied, request_id, spec_json});
  group.jobs[after->id] = after;
  group.changed.insert(after->id);
}

JobPtr EventLog::current(core::JobId id, Group& group) {
  if (const auto found = group.jobs.find(id); found != group.jobs.end()) return found->second;
  return job(id);
}

void EventLog::commit(Group& group) {
  if (group.commits.empty()) return;
  {
    const Hearing::Write under_way(hearing_);
    store_.append(group.commits);
  }
  note_success();
  for (const auto& commit : group.commits) log(commit);
  if (group.next_id != 0) next_id_ = group.next_id;
}

void EventLog::publish(Group& group) {
  {
    std::lock_guard lock(jobs_mutex_);
    for (const auto id : group.changed) {
      const auto& job = group.jobs[id];
      const bool ended = core::is_ended(job->state);
      const auto before = jobs_.find(id);
      const bool was_ended = before != jobs_.end() && core::is_ended(before->second->state);
      jobs_[id] = job;
      if (ended && !was_ended) ended_.push_back(id);
    }
    while (ended_.size() > kEndedJobsInMemory) {
      const auto oldest = jobs_.find(ended_.front());
      // A requeued job is open again.
      if (oldest != jobs_.end() && core::is_ended(oldest->second->state)) jobs_.erase(oldest);
      ended_.pop_front();
    }
  }
  for (const auto id : group.changed) publish_(group.jobs[id], group.with_actions.contains(id));
}

void EventLog::settle(Group& group) {
  for (auto* entry : group.early) early_[entry->job].push_back(std::move(*entry));
  for (const auto id : group.changed) release_early(group.jobs[id]);
  {
    std::lock_guard lock(mutex_);
    for (const auto& [entry, result] : group.results) {
      if (entry->kind == Kind::kFact) known_facts_.erase(key_of(*entry));
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
      if (entry.kind == Kind::kReport) known_reports_.erase(key_of(entry));
    }
    if (!closed_) {
      for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
        if (entry->kind == Kind::kFact) facts_.push_front(std::move(*entry));
      }
    }
  }
  for (auto& entry : entries) {
    if (entry.answer != nullptr) {
      entry.answer->promise.set_value({nullptr, {}, Refusal{Refusal::Kind::kUnchanged, "nothing was changed: " + why}});
    }
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
  for (const auto id : touched) {
    auto loaded = store_.load(id);
    if (!loaded) continue;
    std::lock_guard lock(jobs_mutex_);
    jobs_[id] = std::make_shared<const core::Job>(std::move(*loaded));
  }
}

bool EventLog::too_early(const Entry& entry, const core::Job& job) const {
  if (entry.kind != Kind::kFact || core::is_ended(job.state)) return false;
  if (std::holds_alternative<core::AttemptLaunched>(entry.body)) return false;
  if (std::holds_alternative<core::AttemptLaunchFailed>(entry.body)) return false;
  return core::attempt_of(entry.body) > job.attempts.size();
}

// Puts facts whose time has come in front of those that came after them.
void EventLog::release_early(const JobPtr& job) {
  const auto held = early_.find(job->id);
  if (held == early_.end()) return;
  auto& entries = held->second;
  std::lock_guard lock(mutex_);
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (!closed_ && !too_early(*entry, *job)) facts_.push_front(std::move(*entry));
  }
  std::erase_if(entries, [](const Entry& entry) { return entry.answer == nullptr; });
  if (entries.empty()) early_.erase(held);
}

core::Time EventLog::stamp() {
  const auto wall = clock_.wall();
  if (wall > last_time_ || last_time_ - wall > kSmoothed) last_time_ = wall;
  return last_time_;
}

}  // namespace runtime
