#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "controller/common/clock.h"
#include "controller/common/hearing.h"
#include "controller/common/loop.h"
#include "controller/common/outcome.h"
#include "controller/core/job.h"
#include "controller/store/store.h"

namespace jobs {

using JobPtr = std::shared_ptr<const core::Job>;

/// The newest durable state of jobs: all open jobs and the kEndedInMemory that ended last are in memory, the others are
/// read from the store. Thread-safe; only one thread calls put() and reload().
class JobTable {
 public:
  static constexpr std::size_t kEndedInMemory = 512;
  explicit JobTable(store::Store& store) : store_(store) {}

  /// Null if there is no such job. Throws store::Error.
  JobPtr get(core::JobId id) const;
  /// Returns the job like get(), of the jobs in memory alone.
  JobPtr in_memory(core::JobId id) const;
  /// In the order of their ids.
  std::vector<JobPtr> open() const;
  /// Puts the jobs that have not ended into memory. Throws store::Error.
  void load_open();
  /// Takes a state that is durable.
  void put(const JobPtr& job);
  /// Takes what the store says, if it has the job. Throws store::Error.
  void reload(core::JobId id);

 private:
  store::Store& store_;
  mutable std::mutex mutex_;
  std::unordered_map<core::JobId, JobPtr> jobs_;
  std::deque<core::JobId> ended_;  // the oldest end first; a job that was requeued since may be open again
};

/// The name of the sweep whose first job this is: "s12".
std::string sweep_name(core::JobId first);

/// Job, type, attempt and subject: two facts with the same key are one.
using FactKey = std::tuple<core::JobId, std::size_t, core::AttemptNumber, std::string>;
/// nullopt: no two of these facts are the same. Each is told once, and may be undone and told again while the first one
/// is still being written.
std::optional<FactKey> fact_key(core::JobId job, const core::EventBody& body);
/// True if the job's history holds the fact already. An executor tells a new controller what it told the one before.
bool is_known_fact(const core::Job& job, const core::EventBody& body);
/// True if the fact belongs to an attempt whose launch is not recorded yet. A rank may end before its launch is
/// recorded.
bool is_early_fact(const core::Job& job, const core::EventBody& body);

/// The single writer of events. Takes (job, event) from any thread, folds it with core::apply and groups what waits
/// into one transaction: one fsync serves many. Answers come after the fsync, publish() before the answers.
///
/// When the store takes no writes: what people and ranks ask is refused at once with the reason (ranks say it again
/// with their next heartbeat), while facts given to keep() stay here, in order, and are tried again with a backoff.
/// Equal facts are kept once, so there are at most a few for each live rank. Facts of an attempt whose launch is not
/// recorded yet (a rank may end before the launch has returned) are held until it is.
///
/// While a write stands still, people are refused at once, and what a rank tells is taken in once but not waited for.
///
/// Thread-safe. Without threads, calls write in the caller's thread.
class EventLog {
 public:
  /// Called by the writer after each durable group, once a job. Must not call back into the event_log's writes.
  using Publish = std::function<void(const JobPtr& job, bool has_actions)>;

  struct Submission {
    core::JobSubmitted body;
    std::string request_id;
    std::string spec_json;
  };
  struct Submitted {
    core::JobId id = 0;
    bool already = false;
  };

  EventLog(store::Store& store, common::Clock& clock, common::Hearing& hearing, Publish publish, bool threads);
  ~EventLog() {
    close();
    loop_.close();
  }

  /// A request_id known already, or waiting in the same group, is answered with the first one's job.
  common::Outcome<Submitted> submit(Submission submission);
  /// All of them or none, with ids that follow one another; the first one's request_id stands for all. Their sweep is
  /// named "s<first id>". Not empty.
  common::Outcome<Submitted> submit_sweep(std::vector<Submission> submissions);
  /// Writes the request of a person, which is refused when core says so for the state at that moment.
  common::Outcome<JobPtr> request(core::JobId job, core::EventBody body);
  struct Changed {
    std::vector<JobPtr> jobs;
    std::vector<std::string> refusals;  // of those whose state does not allow it
  };
  /// Writes the request for several jobs at once, in one transaction; each job by itself is changed or refused.
  common::Outcome<Changed> request_all(std::vector<core::JobId> jobs, core::EventBody body);
  /// Writes what a rank tells: durable, or refused. A fact told again while it is on its way is the same entry. Waits
  /// at most Hearing::kPatience.
  common::Outcome<JobPtr> report(core::JobId job, core::EventBody body);
  /// A fact that nobody will tell again. Returns at once.
  void keep(core::JobId job, core::EventBody body) { enqueue({.job = job, .body = std::move(body)}); }
  /// Keeps several facts like keep(), with as few transactions as they need, and waits until they are durable; false of
  /// a fact if the event_log was closed before (or, without threads, if the store takes no writes now).
  std::vector<bool> keep_and_wait(std::vector<std::pair<core::JobId, core::EventBody>> facts);

  /// The newest durable state; null if there is no such job. Throws store::Error.
  JobPtr job(core::JobId id) const { return jobs_.get(id); }
  /// Returns job() for callers that must not wait for a disk: null if the job is not in memory, as all open ones are.
  JobPtr job_in_memory(core::JobId id) const { return jobs_.in_memory(id); }
  std::vector<JobPtr> open_jobs() const { return jobs_.open(); }
  /// Puts the jobs that have not ended into memory. Throws store::Error.
  void load_open() { jobs_.load_open(); }
  /// Jobs to come have higher ids than this. Before the first is submitted.
  void begin_after(core::JobId id) { begin_after_ = id; }
  /// The id that the next job would have. Throws store::Error.
  core::JobId next_job_id() const { return std::max(store_.next_job_id(), begin_after_ + 1); }

  /// Empty, or why the store takes no writes now.
  std::string problem() const;

  /// Writes what waits. Only without threads.
  void pump();
  /// Tries once more to write what waits, then refuses everything.
  void drain();
  /// Refuses everything from now on and lets waiters go; what was not durable is lost, as in a crash.
  void close();

  /// More requests than these waiting at once are refused as too busy.
  static constexpr std::size_t kQueueLimit = 4096;
  static constexpr std::size_t kBatchLimit = 256;

 private:
  enum class Kind { kSubmit, kSubmitSweep, kRequest, kReport, kFact };
  struct Result {
    JobPtr job = nullptr;
    Submitted submitted = {};
    Changed changed = {};
    std::optional<common::Refusal> refusal = {};
  };
  struct Answer {
    std::promise<Result> promise;
    std::shared_future<Result> future = promise.get_future().share();
  };
  struct Entry {
    Kind kind = Kind::kFact;
    core::JobId job = 0;
    core::EventBody body = {};
    std::shared_ptr<Answer> answer = nullptr;
    std::vector<Submission> submissions = {};  // the first one's request_id stands for all
    std::vector<core::JobId> jobs = {};        // a request of several, rather than of `job`
  };
  struct Group;

  std::shared_future<Result> enqueue(Entry entry);
  Result ask_people(Entry entry);
  template <typename Part>
  static common::Outcome<Part> outcome_of(Result result, Part Result::*part);
  static common::Refusal unchanged(const std::string& why) {
    return {common::Refusal::Kind::kUnchanged, "nothing was changed: " + why};
  }
  void forget_old_reports();
  std::string stands_still() const;

  /// One step of the loop: writes what waits, and returns the pause before the next.
  std::optional<core::Millis> write_some();
  bool work_waits() const { return !queue_.empty() || (!facts_.empty() && clock_.monotonic() >= retry_at_); }
  bool pass();
  std::vector<Entry> take();
  void write(std::vector<Entry>& entries);
  void write_one_by_one(std::vector<Entry>& entries);
  void prepare(Entry& entry, Group& group);
  void prepare_all(Entry& entry, Group& group);
  JobPtr add(const core::Job& now, const core::EventBody& body, Group& group);
  void prepare_submit(Entry& entry, Group& group);
  JobPtr current(core::JobId id, Group& group);
  void commit(Group& group);
  void publish(Group& group);
  void settle(Group& group);
  void refuse_or_put_back(std::vector<Entry>& entries, const std::string& why);
  void note_failure(const std::string& why);
  void note_success();
  void reload(std::span<const Entry> entries);
  void release_early(const JobPtr& job);
  core::Time stamp();

  store::Store& store_;
  JobTable jobs_;
  common::Clock& clock_;
  common::Hearing& hearing_;
  const Publish publish_;
  const bool threads_;

  mutable std::mutex mutex_;  // queues and problem
  std::deque<Entry> queue_;
  std::deque<Entry> facts_;
  std::map<FactKey, std::shared_ptr<Answer>> known_facts_;    // in facts_ or being written
  std::map<FactKey, std::shared_ptr<Answer>> known_reports_;  // until their answers are fetched
  bool closed_ = false;
  bool failing_ = false;
  std::string problem_;
  core::Millis failed_at_{0}, retry_at_{0}, backoff_{0};

  // The writer's own.
  core::Time last_time_{};
  core::JobId next_id_ = 0;  // 0: ask the store
  core::JobId begin_after_ = 0;
  std::map<core::JobId, std::vector<Entry>> early_;
  common::Loop loop_;
};

/// Tells jobs that wait for others of their ends: core::DependencyEnded, once for each. Thread-safe.
class Dependencies {
 public:
  explicit Dependencies(EventLog& event_log) : event_log_(event_log) {}

  /// Takes in the job as its history says it is now; cheap.
  void follow(const core::Job& job);
  /// Looks at the jobs waited for, if anything has changed since the last time. Throws store::Error.
  void tell();
  /// tell() has something to look at.
  bool has_news() const {
    std::lock_guard lock(mutex_);
    return news_;
  }

 private:
  EventLog& event_log_;
  mutable std::mutex mutex_;
  std::set<core::JobId> waiting_;
  bool news_ = false;
};

}  // namespace jobs
