#include "controller/jobs/event_log.h"

#include <utility>

namespace jobs {
namespace {

// A failure that nobody repeated is told for this long; afterwards the store may well be fine again.
constexpr core::Millis kProblemTold{30000};
constexpr core::Millis kPeoplePatience{30'000};

constexpr const char* kNoAnswer = "the store did not answer in time; it may still be carried out";
constexpr const char* kShutDown = "musterd is shutting down; try again when it is back";

bool waits(const core::Job& job) {
  if (core::is_ended(job.state)) return false;
  return std::ranges::any_of(job.after, [](const core::Dependency& dependency) { return !dependency.met; });
}

}  // namespace

JobPtr JobTable::in_memory(core::JobId id) const {
  std::lock_guard lock(mutex_);
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : found->second;
}

JobPtr JobTable::get(core::JobId id) const {
  if (auto known = in_memory(id)) return known;
  auto loaded = store_.load(id);
  return loaded ? std::make_shared<const core::Job>(std::move(*loaded)) : nullptr;
}

std::vector<JobPtr> JobTable::open() const {
  std::vector<JobPtr> open;
  std::lock_guard lock(mutex_);
  for (const auto& [id, job] : jobs_) {
    if (!core::is_ended(job->state)) open.push_back(job);
  }
  std::ranges::sort(open, {}, [](const JobPtr& job) { return job->id; });
  return open;
}

void JobTable::load_open() {
  for (auto& job : store_.load_open()) {
    std::lock_guard lock(mutex_);
    // try_emplace: a state that put() took since the read is newer.
    jobs_.try_emplace(job.id, std::make_shared<const core::Job>(job));
  }
}

void JobTable::put(const JobPtr& job) {
  std::lock_guard lock(mutex_);
  auto& known = jobs_[job->id];
  const bool was_ended = known != nullptr && core::is_ended(known->state);
  known = job;
  if (core::is_ended(job->state) && !was_ended) ended_.push_back(job->id);
  while (ended_.size() > kEndedInMemory) {
    const auto oldest = jobs_.find(ended_.front());
    if (oldest != jobs_.end() && core::is_ended(oldest->second->state)) jobs_.erase(oldest);
    ended_.pop_front();
  }
}

void JobTable::reload(core::JobId id) {
  auto loaded = store_.load(id);
  if (!loaded) return;
  std::lock_guard lock(mutex_);
  jobs_[id] = std::make_shared<const core::Job>(std::move(*loaded));
}

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
  const auto key = key_of(entry);
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
  const auto key = is_fact || entry.kind == Kind::kReport ? key_of(entry) : std::nullopt;
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

void Dependencies::follow(const core::Job& job) {
  std::lock_guard lock(mutex_);
  if (waits(job)) {
    news_ = waiting_.insert(job.id).second || news_;
  } else {
    waiting_.erase(job.id);
  }
  if (core::is_ended(job.state) && !waiting_.empty()) news_ = true;
}

void Dependencies::tell() {
  std::set<core::JobId> waiting;
  {
    std::lock_guard lock(mutex_);
    if (!std::exchange(news_, false)) return;
    waiting = waiting_;
  }
  try {
    for (const auto id : waiting) {
      const auto job = event_log_.job(id);
      if (job == nullptr || !waits(*job)) continue;
      for (const auto& dependency : job->after) {
        const auto other = dependency.met ? nullptr : event_log_.job(dependency.job);
        if (other != nullptr && core::is_ended(other->state)) {
          event_log_.keep(id, core::DependencyEnded{dependency.job, other->state});
        }
      }
    }
  } catch (...) {
    std::lock_guard lock(mutex_);
    news_ = true;
    throw;
  }
}

}  // namespace jobs
