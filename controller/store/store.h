#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "controller/core/apply.h"
#include "controller/store/metric_rows.h"

namespace store {

/// A failure of the store, as one sentence with a remedy. The failed call has changed nothing in the store.
class Error : public std::runtime_error {
 public:
  enum class Kind {
    kFull,      // no space, or the folder is read-only
    kCorrupt,   // the file is damaged or not a database
    kInUse,     // another musterd has the database open
    kNewer,     // a newer muster wrote the database
    kConflict,  // the job has changed since the caller read it
    kOther,
  };
  Error(Kind kind, const std::string& text) : std::runtime_error(text), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

/// One event of one job with its consequences. The store writes all of it or nothing.
struct Commit {
  core::Event event;
  /// The job and the actions after the event. A pointer, since a copy of a job with thousands of ranks is large. The
  /// job's version must be one more than the stored one; the store refuses any other.
  std::shared_ptr<const core::Applied> applied;
  /// Set in the job's first event only. Whoever appends keeps the spec's text: a sweep has ten thousand.
  std::string request_id;
  std::string_view spec_json;
};

/// Wraps the result of core::apply() for a Commit.
inline std::shared_ptr<const core::Applied> shared(core::Applied applied) {
  return std::make_shared<const core::Applied>(std::move(applied));
}

struct StoredEvent {
  std::int64_t id = 0;  // grows over all jobs
  core::JobId job = 0;
  std::int64_t version = 0;
  core::Event event;
  core::JobState state_after = core::JobState::kPending;
  std::string text;
  std::string payload;  // the event as stored: JSON
};

/// How far an action of the outbox is. kLaunching is written before an executor is asked, so the world may have changed
/// by then, whatever became of the answer.
enum class ActionState { kPending, kLaunching, kDone };
std::string_view to_string(ActionState state);  // "pending"

/// An action that is not done.
struct PendingAction {
  std::int64_t id = 0;
  core::JobId job = 0;
  core::Action action;
  ActionState state = ActionState::kPending;
  std::optional<core::MachineShare> share = {};  // of a start that is launching: what its attempt was given
};

/// A start whose executor is asked next, and what its attempt was given of musterd's own machine.
struct LaunchingAction {
  std::int64_t id = 0;
  std::optional<core::MachineShare> share = {};
};

/// A row of the jobs table, for lists: no ranks, no history.
struct JobRow {
  core::JobId id = 0;
  std::string name, user, reason;
  bool is_command = false;
  core::JobState state = core::JobState::kPending;
  std::int64_t version = 0;
  core::Step last_checkpoint_step = 0;
  core::Step total_steps = 0;  // as the program told; 0: not told
  std::string program_status;  // as in core::ProgramFacts
  core::Time submitted_at{};
  std::optional<core::Time> started_at, ended_at, next_attempt_at;
  std::optional<core::Attempt> newest_attempt;  // without ranks
  std::string sweep;                            // empty: the job is in no sweep
  std::uint32_t sweep_index = 0;
  std::optional<core::Time> removed_at = {};  // lists leave removed jobs out
};

/// The admins' policy for one partition. The store does not read the policy.
struct PartitionRow {
  std::string name;
  std::string policy;  // JSON
  bool operator==(const PartitionRow&) const = default;
};

/// One change that an admin made: who, when, what, and the policy or the order to drain before and after it.
struct AuditRow {
  std::int64_t id = 0;  // grows
  core::Time at{};
  std::string user;
  std::string action;     // "add", "set", "remove"; "drain", "resume"
  std::string partition;  // empty: about all of musterd
  std::string before;     // JSON; empty: there was none
  std::string after;      // JSON; empty: there is none any more
  bool operator==(const AuditRow&) const = default;
};

/// Counts for monitoring.
struct Totals {
  std::map<std::string, std::uint64_t> jobs;            // by state, now
  std::map<std::string, std::uint64_t> attempts_ended;  // by cause, ever
  std::map<std::string, std::uint64_t> events;          // by type, in the range asked for
  std::int64_t last_event = 0;                          // the newest event counted
};

struct ListFilter {
  std::vector<core::JobState> states = {};  // empty: all
  std::uint32_t limit = 100;
  core::JobId before = 0;             // 0: from the newest
  std::string sweep = {};             // empty: jobs of any sweep and of none
  std::vector<core::JobId> ids = {};  // empty: any
};

/// Data that survive a restart of the controller: append-only events, projections written in the same transaction, and
/// the outbox of pending actions.
///
/// Every write is durable when the call returns (WAL and fsync). The store is thread-safe and serialises writes. The
/// SQLite and the in-memory implementation pass the same contract suite.
class Store {
 public:
  virtual ~Store() = default;

  /// Appends all commits in one transaction with one fsync. Throws Error if one of them cannot be appended, and then
  /// appends none. Commits of the same job must be in order. Returns the event ids in order.
  virtual std::vector<std::int64_t> append(std::span<const Commit> commits) = 0;

  virtual std::optional<core::JobId> find_request(const std::string& request_id) = 0;
  /// One more than the newest job's id. Ids are never reused: a removed job keeps its own.
  virtual core::JobId next_job_id() = 0;

  /// Folds the job's events. nullopt: no such job.
  virtual std::optional<core::Job> load(core::JobId id) = 0;
  /// The spec of a removed job is "{}".
  virtual std::optional<std::string> spec_json(core::JobId id) = 0;
  /// Jobs that have not ended, oldest first.
  virtual std::vector<core::Job> load_open() = 0;

  /// Newest first. Removed jobs are left out.
  virtual std::vector<JobRow> list(const ListFilter& filter) = 0;
  /// The number of jobs in these states (empty: any) and of this sweep (empty: any, or none). Removed jobs are left
  /// out.
  virtual std::int64_t count(std::span<const core::JobState> states, const std::string& sweep = {}) = 0;

  /// The NodeLost events of all jobs since `since`, oldest first, at most `limit`.
  virtual std::vector<StoredEvent> node_losses(core::Time since, std::uint32_t limit) = 0;
  /// At most `limit` events with an id above `after_id`, oldest first. `job` 0: of all jobs.
  virtual std::vector<StoredEvent> events(core::JobId job, std::int64_t after_id, std::uint32_t limit) = 0;
  virtual std::int64_t last_event_id() = 0;
  /// Counts the jobs, the ended attempts, and at most `most` events after `after_event`. The next call may start at
  /// `last_event`.
  virtual Totals totals(std::int64_t after_event, std::uint32_t most) = 0;

  /// The actions that are not done, the oldest first.
  virtual std::vector<PendingAction> pending_actions() = 0;
  /// Sets the state of all of these actions, in one transaction. An action that is done is ignored.
  virtual void set_actions(std::span<const std::int64_t> action_ids, ActionState state) = 0;
  /// Sets these actions to kLaunching, each with its share, in one transaction. An action that is done is ignored.
  virtual void set_launching(std::span<const LaunchingAction> actions) = 0;
  void complete_actions(std::span<const std::int64_t> action_ids) { set_actions(action_ids, ActionState::kDone); }
  void complete_action(std::int64_t action_id) { complete_actions({&action_id, 1}); }

  /// Adds rows and what ranks declare about their series. A series that no rank has declared is taken as
  /// spec::undeclared_series(). A job has at most spec::kMostSeries; values of further series are dropped.
  ///
  /// A row that comes after the rows of single ranks of its step have aged out is left out, since nobody knows whether
  /// it came before. Rank 0's first word of a step is taken all the same, and so are steps of which no row has aged.
  virtual void add_metrics(std::span<const MetricRow> rows, std::span<const DeclaredSeries> declared = {}) = 0;
  /// At most `limit` steps after (after_attempt, after_step), in this order. `attempt` 0: of all attempts. Steps whose
  /// rows have aged out are left out, and StepRow::aged_before tells of them.
  virtual std::vector<StepRow> metrics(core::JobId job, core::AttemptNumber attempt, core::AttemptNumber after_attempt,
                                       core::Step after_step, std::uint32_t limit) = 0;
  /// The curves of a job in a few thousand points, see Thinned. A curve leaves out steps without a row of rank 0.
  virtual Thinned thinned(const ThinRequest& request) = 0;
  /// How many rows of ranks of the job came after the rows of their steps had aged out, and so are in no curve.
  virtual std::int64_t metrics_left_out(core::JobId job) = 0;
  /// Deletes at most `most` rows of the job. Returns the number of deleted rows.
  virtual std::uint32_t remove_metrics(core::JobId job, std::uint32_t most) = 0;
  /// Lets metrics age: deletes at most about `most` rows that MetricsKeep no longer keeps, all of one step at least.
  /// Rows age by the hour in which they were stored, by the store's clock. Returns true if more is due now.
  virtual bool age_metrics(const MetricsKeep& keep, std::uint32_t most) = 0;
  /// The row of rank 0's newest step, in the newest attempt that has one. Once it has aged out: that of all ranks.
  virtual std::optional<MetricRow> newest_metric(core::JobId job) = 0;

  /// The job's series that have a value, in the order in which they first appeared. Each has the newest value of the
  /// newest attempt that reported it.
  virtual std::vector<SeriesRow> series(core::JobId job) = 0;

  /// Ordered by name.
  virtual std::vector<PartitionRow> partitions() = 0;
  /// Sets each partition's policy to `after` and keeps the row for ever, all in one transaction. The store chooses the
  /// ids of the rows.
  virtual void change_partitions(std::span<const AuditRow> changes) = 0;
  /// Newest first: rows with an id below `before_id` (0: all) and of this partition (empty: any).
  virtual std::vector<AuditRow> audit(std::int64_t before_id, const std::string& partition, std::uint32_t limit) = 0;

  virtual std::optional<core::Drain> drain() = 0;
  /// Sets or ends the order, and keeps who did so for ever, in one transaction.
  virtual void change_drain(const std::optional<core::Drain>& drain, const std::string& user, core::Time at) = 0;

  /// A random secret, made at the first start and kept. Rank tokens and the name of the store are derived from it.
  virtual std::string secret() = 0;
  /// The place that settle() stored last; empty: none.
  virtual std::string place() = 0;
  /// Stores the place. With `new_secret`, also makes a new secret in the same transaction, so that the store gets
  /// another name and other rank tokens.
  virtual void settle(const std::string& place, bool new_secret) = 0;
  virtual std::int64_t schema_version() = 0;
};

// Rules that every store shares.

/// Throws kConflict unless the job's version is one more than the stored one.
void require_next(const core::Job& job, std::int64_t stored_version);
/// The kConflict error for a request id that was used before.
Error request_taken(const std::string& request_id);
/// The row of the audit about a change of the order to drain.
AuditRow drain_change(const std::optional<core::Drain>& before, const std::optional<core::Drain>& after,
                      const std::string& user, core::Time at);
/// The job's row in lists.
JobRow row_of(const core::Job& job);
/// 32 bytes from the kernel's random source, in hexadecimal. Throws Error if there is none.
std::string random_secret();

}  // namespace store
