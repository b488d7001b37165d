#include "controller/store/sqlite_store.h"

#include <utility>

#include "controller/store/codec.h"
#include "controller/store/sqlite_backup.h"
#include "controller/store/sqlite_database.h"
#include "controller/store/sqlite_metrics.h"
#include "controller/store/sqlite_pair.h"
#include "controller/store/sqlite_rows.h"

namespace store {
namespace {

namespace fs = std::filesystem;

/// The readers of the two databases. Curves of a long job take tens of milliseconds, and a page of rows must not wait.
constexpr std::size_t kOnlyReader = 0, kRowsReader = 0, kCurvesReader = 1;

constexpr const char* kFindRequest = "SELECT id FROM jobs WHERE request_id = ?";

/// resumed_from_step before the ranks have reported it.
constexpr std::int64_t kNotTold = -1;

void insert_job(Connection& connection, const Commit& commit, const JobRow& job) {
  const auto request = commit.request_id.empty() ? std::nullopt : std::optional(commit.request_id);
  if (request && connection.first<core::JobId>(kFindRequest, *request)) throw request_taken(*request);
  const auto sweep = job.sweep.empty() ? std::nullopt : std::optional(job.sweep);
  const auto sweep_index = sweep ? std::optional(job.sweep_index) : std::nullopt;
  connection.run(
      "INSERT INTO jobs (id, request_id, spec_json, name, user, is_command, state, reason, version, "
      "last_checkpoint_step, submitted_at_ms, sweep, sweep_index) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      job.id, request, commit.spec_json, job.name, job.user, job.is_command, job.state, job.reason, job.version,
      job.last_checkpoint_step, job.submitted_at, sweep, sweep_index);
}

void update_job(Connection& connection, const JobRow& job) {
  connection.run(
      "UPDATE jobs SET state = ?, reason = ?, version = ?, last_checkpoint_step = ?, total_steps = ?, "
      "program_status = ?, started_at_ms = ?, ended_at_ms = ?, next_attempt_at_ms = ? WHERE id = ?",
      job.state, job.reason, job.version, job.last_checkpoint_step, job.total_steps, job.program_status, job.started_at,
      job.ended_at, job.next_attempt_at, job.id);
}

/// Marks the job as removed and deletes its spec, which may hold secrets.
void mark_removed(Connection& connection, const JobRow& job) {
  connection.run("INSERT INTO removed_jobs (job_id, at_ms) VALUES (?, ?) ON CONFLICT DO NOTHING", job.id,
                 *job.removed_at);
  connection.run("UPDATE jobs SET spec_json = '{}' WHERE id = ?", job.id);
}

void upsert_attempt(Connection& connection, core::JobId job, const core::Attempt& attempt) {
  const auto& exit = attempt.culprit_exit;
  const auto& there = attempt.scheduler_job;
  connection.run(
      "INSERT OR REPLACE INTO attempts (job_id, number, state, cause, reason, reason_started, culprit, "
      "culprit_code, culprit_signal, started_at_ms, running_at_ms, ended_at_ms, resumed_from_step, handle, "
      "queued_at_ms, scheduler_job, scheduler_element) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      job, attempt.number, attempt.state, attempt.cause, attempt.reason, attempt.reason_started, attempt.culprit,
      exit ? std::optional(exit->code) : std::nullopt, exit ? std::optional(exit->signal) : std::nullopt,
      attempt.started_at, attempt.running_at, attempt.ended_at, attempt.resumed_from_step.value_or(kNotTold),
      attempt.handle, attempt.queued_at, there ? std::optional(there->number) : std::nullopt,
      there ? there->element : std::nullopt);
}

std::int64_t insert_event(Connection& connection, const Commit& commit) {
  const core::Job& job = commit.applied->job;
  const auto& [at, body] = commit.event;
  connection.run(
      "INSERT INTO events (job_id, version, at_ms, type, attempt, payload, state_after, text) "
      "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
      job.id, job.version, at, type_name(body), attempt_of(body), encode_event(body), job.state, commit.applied->text);
  return connection.database().getLastInsertRowid();
}

/// Adds one event, its projections and its actions; returns the event's id. Throws Error kConflict.
std::int64_t write_commit(Connection& connection, const Commit& commit) {
  const core::Job& job = commit.applied->job;
  const auto version = connection.first<std::int64_t>("SELECT version FROM jobs WHERE id = ?", job.id);
  require_next(job, version.value_or(0));
  const JobRow row = row_of(job);
  if (job.version == 1)
    insert_job(connection, commit, row);
  else
    update_job(connection, row);
  if (row.removed_at) mark_removed(connection, row);
  // An event never changes any attempt but the newest.
  if (job.current() != nullptr) upsert_attempt(connection, job.id, *job.current());
  const std::int64_t event_id = insert_event(connection, commit);
  std::int64_t index = 0;
  for (const core::Action& action : commit.applied->actions) {
    connection.run("INSERT INTO actions (event_id, idx, job_id, kind, payload) VALUES (?, ?, ?, ?, ?)", event_id,
                   index++, job.id, action_kind(action), encode_action(action));
  }
  return event_id;
}

/// Stores the change in the audit, and the partition's new policy.
constexpr const char* kSetMeta =
    "INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
constexpr const char* kReadMeta = "SELECT value FROM meta WHERE key = ?";
constexpr const char *kDrain = "drain", *kPlace = "place";

void write_audit(Connection& connection, const AuditRow& change) {
  connection.run("INSERT INTO audit (at_ms, user, action, partition, before, after) VALUES (?, ?, ?, ?, ?, ?)",
                 change.at, change.user, change.action, change.partition, change.before, change.after);
}

void write_partition_change(Connection& connection, const AuditRow& change) {
  write_audit(connection, change);
  if (change.after.empty()) {
    connection.run("DELETE FROM partitions WHERE name = ?", change.partition);
  } else {
    connection.run("INSERT OR REPLACE INTO partitions (name, policy) VALUES (?, ?)", change.partition, change.after);
  }
}

class SqliteStore final : public Store {
 public:
  SqliteStore(const fs::path& file, SqliteOptions options)
      : options_(std::move(options)),
        lock_(file.string() + ".lock", file),
        jobs_((refuse_half_restored(file), file)),
        metrics_(metrics_file_of(file)) {
    const bool are_known = jobs_.is_known() && metrics_.is_known();
    jobs_.check(migrations());
    metrics_.check(metrics_migrations());
    // Nothing is written before both have passed their checks.
    jobs_.begin(false);
    metrics_.begin(true);
    bring_up_to_date();
    if (!are_known) remove_strange_metrics(jobs_, metrics_, options_.tell);
    jobs_.writing([](Connection& writer) {
      writer.run("INSERT INTO meta (key, value) VALUES ('secret', ?) ON CONFLICT DO NOTHING", random_secret());
      read_secret(writer);  // throws if the database is damaged
    });
    jobs_.open_readers(1);
    metrics_.open_readers(2);
  }

  std::vector<std::int64_t> append(std::span<const Commit> commits) override {
    return jobs_.writing([&](Connection& writer) {
      std::vector<std::int64_t> ids;
      ids.reserve(commits.size());
      for (const Commit& commit : commits) ids.push_back(write_commit(writer, commit));
      return ids;
    });
  }
  void set_actions(std::span<const std::int64_t> action_ids, ActionState state) override {
    if (action_ids.empty()) return;
    const auto now = std::chrono::floor<core::Millis>(std::chrono::system_clock::now());
    const auto done_at = state == ActionState::kDone ? std::optional<core::Time>(now) : std::nullopt;
    jobs_.writing([&](Connection& writer) {
      for (const auto id : action_ids) {
        writer.run("UPDATE actions SET state = ?, done_at_ms = ? WHERE id = ? AND state <> 'done'", state, done_at, id);
      }
    });
  }
  void set_launching(std::span<const LaunchingAction> actions) override {
    if (actions.empty()) return;
    jobs_.writing([&](Connection& writer) {
      for (const auto& action : actions) {
        const auto share = action.share ? std::optional(encode_share(*action.share)) : std::nullopt;
        writer.run("UPDATE actions SET state = ?, share = ? WHERE id = ? AND state <> 'done'", ActionState::kLaunching,
                   share, action.id);
      }
    });
  }
  void add_metrics(std::span<const MetricRow> rows, std::span<const DeclaredSeries> declared) override {
    if (rows.empty() && declared.empty()) return;
    const auto hour = hour_of(options_.now());
    const auto words = writing_metrics([&](Connection& writer) {
      write_metrics(writer, known_series_, buckets_, rows, declared, hour);
      return buckets_.take_words();
    });
    for (const auto& word : words) options_.tell(word);
  }
  std::uint32_t remove_metrics(core::JobId job, std::uint32_t most) override {
    return writing_metrics([&](Connection& writer) {
      known_series_.forget(job);
      buckets_.forget(job);
      return erase_metrics(writer, job, most);
    });
  }
  bool age_metrics(const MetricsKeep& keep, std::uint32_t most) override {
    return writing_metrics([&](Connection& writer) {
      const auto is_over = [&](core::JobId job, core::AttemptNumber attempt) {
        constexpr auto kEnded = "SELECT 1 FROM attempts WHERE job_id = ? AND number = ? AND state = ?";
        return first<int>(kEnded, job, attempt, core::AttemptState::kEnded).has_value();
      };
      return store::age_metrics(writer, buckets_, options_.now(), keep, most, is_over) || give_back_pages(writer);
    });
  }

  std::optional<core::JobId> find_request(const std::string& request_id) override {
    return first<core::JobId>(kFindRequest, request_id);
  }
  core::JobId next_job_id() override { return *first<core::JobId>("SELECT ifnull(max(id), 0) + 1 FROM jobs"); }
  std::optional<core::Job> load(core::JobId id) override { return reading(read_job, id); }
  std::optional<std::string> spec_json(core::JobId id) override {
    return first<std::string>("SELECT spec_json FROM jobs WHERE id = ?", id);
  }
  std::vector<core::Job> load_open() override { return reading(read_open_jobs); }
  std::vector<JobRow> list(const ListFilter& filter) override { return reading(read_list, filter); }
  std::int64_t count(std::span<const core::JobState> states, const std::string& sweep) override {
    return reading(read_count, states, sweep);
  }
  std::vector<StoredEvent> node_losses(core::Time since, std::uint32_t limit) override {
    return reading(read_node_losses, since, limit);
  }
  std::vector<StoredEvent> events(core::JobId job, std::int64_t after_id, std::uint32_t limit) override {
    return reading(read_events, job, after_id, limit);
  }
  std::int64_t last_event_id() override { return *first<std::int64_t>("SELECT ifnull(max(id), 0) FROM events"); }
  Totals totals(std::int64_t after_event, std::uint32_t most) override {
    return reading(read_totals, after_event, most);
  }
  std::vector<PendingAction> pending_actions() override { return reading(read_pending_actions); }
  std::vector<StepRow> metrics(core::JobId job, core::AttemptNumber attempt, core::AttemptNumber after_attempt,
                               core::Step after_step, std::uint32_t limit) override {
    return metrics_.reading(kRowsReader, read_metrics, job, attempt, after_attempt, after_step, limit);
  }
  Thinned thinned(const ThinRequest& request) override {
    return metrics_.reading(kCurvesReader, read_thinned, request);
  }
  std::optional<MetricRow> newest_metric(core::JobId job) override {
    return metrics_.reading(kRowsReader, read_newest_metric, job);
  }
  std::vector<SeriesRow> series(core::JobId job) override { return metrics_.reading(kRowsReader, read_series, job); }
  std::int64_t metrics_left_out(core::JobId job) override { return metrics_.reading(kRowsReader, read_left_out, job); }
  std::vector<PartitionRow> partitions() override { return reading(read_partitions); }
  void change_partitions(std::span<const AuditRow> changes) override {
    if (changes.empty()) return;
    jobs_.writing([&](Connection& writer) {
      for (const AuditRow& change : changes) write_partition_change(writer, change);
    });
  }
  std::vector<AuditRow> audit(std::int64_t before_id, const std::string& partition, std::uint32_t limit) override {
    return reading(read_audit, before_id, partition, limit);
  }
  std::optional<core::Drain> drain() override { return decode_drain(meta(kDrain)); }
  void change_drain(const std::optional<core::Drain>& drain, const std::string& user, core::Time at) override {
    jobs_.writing([&](Connection& writer) {
      const auto before = decode_drain(writer.first<std::string>(kReadMeta, kDrain).value_or(""));
      write_audit(writer, drain_change(before, drain, user, at));
      if (drain) {
        writer.run(kSetMeta, kDrain, encode_drain(drain));
      } else {
        writer.run("DELETE FROM meta WHERE key = ?", kDrain);
      }
    });
  }
  std::string secret() override { return reading(read_secret); }
  std::string place() override { return meta(kPlace); }
  void settle(const std::string& place, bool new_secret) override {
    jobs_.writing([&](Connection& writer) {
      writer.run(kSetMeta, kPlace, place);
      if (new_secret) writer.run("UPDATE meta SET value = ? WHERE key = 'secret'", random_secret());
    });
  }
  std::int64_t schema_version() override {
    return reading([](Connection& c) { return stored_version(c.database()); });
  }

 private:
  void bring_up_to_date() {
    const auto tell_if_newer = [&](Database& one, const Migrations& all) {
      const auto version = version_of(one), newest = static_cast<std::int64_t>(all.newest());
      if (version > newest) {
        options_.tell(one.file() + " has schema version " + std::to_string(version) +
                      ", of a newer muster: this muster knows up to " + std::to_string(newest) +
                      " and works with it, without what is new there");
      }
    };
    const bool are_missing = version_of(metrics_) == 0 && version_of(jobs_) != 0;
    tell_if_newer(jobs_, migrations());
    migrate_beside_copy(jobs_, migrations(), options_.tell);
    tell_if_newer(metrics_, metrics_migrations());
    metrics_.translating(metrics_.writer(), [&] { migrate(metrics_.writer().database(), metrics_migrations()); });
    pair_databases(jobs_, metrics_);
    shrink();
    if (are_missing) tell_of_missing_metrics();
  }

  static std::int64_t version_of(Database& one) {
    return one.translating(one.writer(), [&] { return stored_version(one.writer().database()); });
  }

  /// Gives the room of what was removed back to the disk, if it is most of the file. The store works without it.
  void shrink() {
    try {
      jobs_.translating(jobs_.writer(), [&] {
        auto& database = jobs_.writer().database();
        const auto free = database.execAndGet("PRAGMA freelist_count").getInt64();
        const auto all = database.execAndGet("PRAGMA page_count").getInt64();
        if (free > all / 2) database.exec("VACUUM");
      });
    } catch (const Error& error) {
      options_.tell("the room of what was removed is not given back to the disk yet: " + std::string(error.what()));
    }
  }

  void tell_of_missing_metrics() {
    const auto any =
        jobs_.writing([](Connection& writer) { return writer.first<int>("SELECT 1 FROM attempts LIMIT 1"); });
    if (!any) return;
    options_.tell(metrics_.file() +
                  " was not there: the jobs are all there, and what they reported before is gone. If a backup of it is "
                  "to be used, stop musterd and put it in its place");
  }

  /// Writes metrics as Database::writing() does.
  template <typename Work>
  auto writing_metrics(Work work) -> decltype(work(std::declval<Connection&>())) {
    return metrics_.writing(work, [this] {
      known_series_.clear();
      buckets_.clear();
    });
  }

  /// Returns read(connection, arguments...) of the database of jobs.
  template <typename Read, typename... Arguments>
  auto reading(Read read, const Arguments&... arguments) -> decltype(read(std::declval<Connection&>(), arguments...)) {
    return jobs_.reading(kOnlyReader, read, arguments...);
  }

  /// The value of a key of the table meta; empty: the key has none.
  std::string meta(const char* key) { return first<std::string>(kReadMeta, key).value_or(""); }

  /// The first column of the first row; nullopt: there is no row.
  template <typename T, typename... Values>
  std::optional<T> first(const char* sql, const Values&... values) {
    return reading([&](Connection& connection) { return connection.first<T>(sql, values...); });
  }

  const SqliteOptions options_;
  FileLock lock_;
  Database jobs_, metrics_;
  KnownSeries known_series_;
  MetricBuckets buckets_;
};

}  // namespace

std::unique_ptr<Store> open_sqlite_store(const fs::path& file, SqliteOptions options) {
  return std::make_unique<SqliteStore>(file, std::move(options));
}

}  // namespace store
