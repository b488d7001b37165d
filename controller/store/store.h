#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/apply.h"
#include "store/metric_rows.h"

namespace store {

/// What went wrong with the store, in one sentence with the remedy. Nothing of the failed call is in the store.
class Error : public std::runtime_error {
 public:
  enum class Kind {
    kFull,      // no space, or the folder takes no writes
    kCorrupt,   // the file is no database, or damaged
    kInUse,     // another musterd holds it
    kNewer,     // written by a newer muster
    kConflict,  // the job has changed since it was read
    kOther,
  };
  Error(Kind kind, const std::string& text) : std::runtime_error(text), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

/// One event of one job with its consequences, written together or not at all.
struct Commit {
  core::Event event;
  /// What it leads to, shared with whoever goes on from the job: of thousands of ranks a copy is large. Its job has the
  /// version after the event; the store refuses any but the next one.
  std::shared_ptr<const core::Applied> applied;
  /// Of the first event alone.
  std::string request_id;
  std::string spec_json;
};

/// As a commit holds it.
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

struct PendingAction {
  std::int64_t id = 0;
  core::JobId job = 0;
  core::Action action;
};

/// A row of the jobs table, for lists: no ranks, no history.
struct JobRow {
  core::JobId id = 0;
  std::string name, user, reason;
  bool is_command = false;
  core::JobState state = core::JobState::kPending;
  std::int64_t version = 0;
  core::Step last_checkpoint_step = 0;
  core::Time submitted_at{};
  std::optional<core::Time> started_at, ended_at, next_attempt_at;
  std::optional<core::Attempt> newest_attempt;  // without ranks
  std::string sweep;                            // empty: the job stands alone
  std::uint32_t sweep_index = 0;
  std::optional<core::Time> removed_at = {};  // such rows are in no list
};

/// One partition as admins have it; what the text says is not the store's business.
struct PartitionRow {
  std::string name;
  std::string policy;  // JSON
  bool operator==(const PartitionRow&) const = default;
};

/// One change that an admin made: who, when, what, and the policy before and after it.
struct AuditRow {
  std::int64_t id = 0;  // grows
  core::Time at{};
  std::string user;
  std::string action;  // "add", "set", "remove"
  std::string partition;
  std::string before;  // JSON; empty: there was none
  std::string after;   // JSON; empty: there is none any more
  bool operator==(const AuditRow&) const = default;
};

/// What is counted, by name.
struct Totals {
  std::map<std::string, std::uint64_t> jobs;            // by state, now
  std::map<std::string, std::uint64_t> attempts_ended;  // by cause, ever
  std::map<std::string, std::uint64_t> events;          // by type, of those asked for
  std::int64_t last_event = 0;                          // the newest event counted
};

struct ListFilter {
  std::vector<core::JobState> states = {};  // empty: all
  std::uint32_t limit = 100;
  core::JobId before = 0;             // 0: from the newest
  std::string sweep = {};             // empty: of all, and of none
  std::vector<core::JobId> ids = {};  // empty: any
};

/// The controller's memory: append-only events, projections kept in the same transaction, and the outbox of actions.
///
/// Every write is durable when it returns (WAL and fsync). Calls come from several threads; writes are serialised
/// inside. SQLite and in-memory implementations pass one contract suite.
class Store {
 public:
  virtual ~Store() = default;

  /// Appends all commits in one transaction (one fsync): all of them or, throwing Error, none. Several commits of one
  /// job must be in order. Returns the event ids in order.
  virtual std::vector<std::int64_t> append(std::span<const Commit> commits) = 0;

  virtual std::optional<core::JobId> find_request(const std::string& request_id) = 0;
  /// One more than the newest job's id. Ids are never reused: a removed job keeps its own.
  virtual core::JobId next_job_id() = 0;

  /// Folds the job's events. nullopt: no such job.
  virtual std::optional<core::Job> load(core::JobId id) = 0;
  virtual std::optional<std::string> spec_json(core::JobId id) = 0;
  /// Jobs that have not ended, oldest first.
  virtual std::vector<core::Job> load_open() = 0;

  /// Without removed jobs, whose specs are gone: theirs is "{}".
  virtual std::vector<JobRow> list(const ListFilter& filter) = 0;
  /// How many jobs there are: of these states (empty: all) and of this sweep (empty: of all, and of none).
  virtual std::int64_t count(std::span<const core::JobState> states, const std::string& sweep = {}) = 0;

  /// Every NodeLost no older than `since`, oldest first, at most `limit`, over all jobs.
  virtual std::vector<StoredEvent> node_losses(core::Time since, std::uint32_t limit) = 0;
  /// Oldest first. `job` 0: of every job.
  virtual std::vector<StoredEvent> events(core::JobId job, std::int64_t after_id, std::uint32_t limit) = 0;
  virtual std::int64_t last_event_id() = 0;
  /// Counts `most` events after `after_event`; the next call may go on at `last_event`.
  virtual Totals totals(std::int64_t after_event, std::uint32_t most) = 0;

  virtual std::vector<PendingAction> pending_actions() = 0;
  /// All of them in one transaction; one that is not pending is fine.
  virtual void complete_actions(std::span<const std::int64_t> action_ids) = 0;
  void complete_action(std::int64_t action_id) { complete_actions({&action_id, 1}); }

  /// With what is known of their series. Of a series that nobody has declared see schema::undeclared_series(); values
  /// of more than schema::kMostSeries of a job are left out.
  virtual void add_metrics(std::span<const MetricRow> rows, std::span<const DeclaredSeries> declared = {}) = 0;
  /// Steps in order of (attempt, step), those after the position given. `attempt` 0: all attempts.
  virtual std::vector<StepRow> metrics(core::JobId job, core::AttemptNumber attempt, core::AttemptNumber after_attempt,
                                       core::Step after_step, std::uint32_t limit) = 0;
  /// Deletes at most so many rows of a job; returns how many there were to delete.
  virtual std::uint32_t remove_metrics(core::JobId job, std::uint32_t most) = 0;
  /// Rank 0's newest step of the newest attempt that made one.
  virtual std::optional<MetricRow> newest_metric(core::JobId job) = 0;

  /// Those that have a value, in the order in which they came up, each with the newest attempt's newest value.
  virtual std::vector<SeriesRow> series(core::JobId job) = 0;

  /// By name.
  virtual std::vector<PartitionRow> partitions() = 0;
  /// Makes each partition what `after` says and keeps the row for ever, all in one transaction; their ids are the
  /// store's to choose.
  virtual void change_partitions(std::span<const AuditRow> changes) = 0;
  /// Newest first: those with a smaller id than `before_id` (0: all) and of this partition (empty: of any).
  virtual std::vector<AuditRow> audit(std::int64_t before_id, const std::string& partition, std::uint32_t limit) = 0;

  /// A random secret, made at the first start and kept: rank tokens and the store's name derive from it.
  virtual std::string secret() = 0;
  /// Where it was opened last, as settle() was told; empty: nobody has said.
  virtual std::string place() = 0;
  /// Keeps the place; with `new_secret`, under another name and with other rank tokens from now on, in one transaction.
  virtual void settle(const std::string& place, bool new_secret) = 0;
  virtual std::int64_t schema_version() = 0;
};

}  // namespace store
