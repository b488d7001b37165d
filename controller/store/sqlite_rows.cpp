#include "controller/store/sqlite_rows.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>

#include "controller/store/codec.h"

namespace store {
namespace {

// Selects the columns that read_job_row() reads, for the ids in `wanted`.
#define MUSTER_SELECT_ROWS                                                                                \
  "SELECT j.id, j.name, j.user, j.reason, j.is_command, j.state, j.version, j.last_checkpoint_step, "     \
  "j.submitted_at_ms, j.started_at_ms, j.ended_at_ms, j.next_attempt_at_ms, "                             \
  "a.number, a.state, a.cause, a.reason, a.reason_started, a.culprit, a.culprit_code, a.culprit_signal, " \
  "a.started_at_ms, a.running_at_ms, a.ended_at_ms, a.resumed_from_step, a.handle, a.queued_at_ms, "      \
  "a.scheduler_job, a.scheduler_element, j.total_steps, j.program_status, j.sweep, j.sweep_index "        \
  "FROM wanted JOIN jobs j ON j.id = wanted.id LEFT JOIN attempts a ON a.job_id = j.id AND "              \
  "a.number = (SELECT max(number) FROM attempts WHERE job_id = j.id) ORDER BY j.id DESC"

// True for a job that was not removed.
#define MUSTER_IS_THERE "id NOT IN (SELECT job_id FROM removed_jobs)"

constexpr std::string_view kOpenStates = R"(["pending","queued","running","stopping","waiting"])";

/// The parameter of `state IN (SELECT value FROM json_each(?))`.
std::string states_json(std::span<const core::JobState> states) {
  auto json = nlohmann::json::array();
  for (const core::JobState state : states) json.push_back(to_string(state));
  return json.dump();
}

template <typename T, typename Parse>
T parse_name(const std::string& name, Parse parse) {
  if (const std::optional<T> value = parse(name)) return *value;
  throw Error(Error::Kind::kNewer, "the database says \"" + name + "\", which this version of muster does not know");
}

core::JobState job_state(const std::string& name) {
  return parse_name<core::JobState>(name, core::job_state_from_string);
}

core::Event read_event(const Query& row, int at, int type, int payload) {
  return {row.get<core::Time>(at), decode_event(row.get<std::string>(type), row.get<std::string>(payload))};
}

/// Folds the event in the columns from `at` on into the job.
void fold(core::Job& job, const Query& row, int at) {
  job = core::apply(std::move(job), read_event(row, at, at + 1, at + 2)).job;
}

/// Reads the columns id, job_id, version, at_ms, type, payload, state_after, text.
StoredEvent read_stored_event(const Query& row) {
  StoredEvent event;
  row.get_to(0, event.id, event.job, event.version);
  event.event = read_event(row, 3, 4, 5);
  event.state_after = job_state(row.get<std::string>(6));
  row.get_to(7, event.text);
  row.get_to(5, event.payload);
  return event;
}

/// Reads the columns of a job's newest attempt, which begin at `first`. They are null if the job has no attempt.
std::optional<core::Attempt> read_attempt(const Query& row, int first) {
  if (row.is_null(first)) return std::nullopt;
  core::Attempt attempt;
  std::string state, cause;
  std::optional<int> code, signal;
  core::Step resumed_from = 0;
  std::optional<std::uint64_t> number;
  std::optional<std::uint32_t> element;
  row.get_to(first, attempt.number, state, cause, attempt.reason, attempt.reason_started, attempt.culprit, code, signal,
             attempt.started_at, attempt.running_at, attempt.ended_at, resumed_from, attempt.handle, attempt.queued_at,
             number, element);
  attempt.state = parse_name<core::AttemptState>(state, core::attempt_state_from_string);
  attempt.cause = parse_name<core::Cause>(cause, core::cause_from_string);
  if (code) attempt.culprit_exit = {*code, signal.value_or(0)};
  if (number) attempt.scheduler_job = core::SchedulerJob{*number, element};
  if (resumed_from >= 0) attempt.resumed_from_step = resumed_from;
  return attempt;
}

JobRow read_job_row(const Query& row) {
  JobRow job;
  std::string state;
  row.get_to(0, job.id, job.name, job.user, job.reason, job.is_command, state, job.version, job.last_checkpoint_step,
             job.submitted_at, job.started_at, job.ended_at, job.next_attempt_at);
  job.state = job_state(state);
  job.newest_attempt = read_attempt(row, 12);
  row.get_to(28, job.total_steps, job.program_status);
  row.get_to(30, job.sweep, job.sweep_index);  // both are null if the job is in no sweep
  return job;
}

}  // namespace

std::optional<core::Job> read_job(Connection& connection, core::JobId id) {
  Query row = connection.query("SELECT at_ms, type, payload FROM events WHERE job_id = ? ORDER BY version", id);
  std::optional<core::Job> job;
  while (row.next()) {
    if (!job) job.emplace().id = id;
    fold(*job, row, 0);
  }
  return job;
}

std::vector<core::Job> read_open_jobs(Connection& connection) {
  Query row = connection.query(
      "SELECT job_id, at_ms, type, payload FROM events WHERE job_id IN (SELECT id FROM jobs WHERE state IN "
      "(SELECT value FROM json_each(?))) ORDER BY job_id, version",
      kOpenStates);
  std::vector<core::Job> jobs;
  while (row.next()) {
    const auto id = row.get<core::JobId>(0);
    if (jobs.empty() || jobs.back().id != id) jobs.emplace_back().id = id;
    fold(jobs.back(), row, 1);
  }
  return jobs;
}

std::vector<JobRow> read_list(Connection& connection, const ListFilter& filter) {
  // Each query finds the ids in an index first, since rows are large. There are four statements because each needs
  // another index.
#define MUSTER_PAGE "(?2 = 0 OR id < ?2) AND " MUSTER_IS_THERE " ORDER BY id DESC LIMIT ?3) " MUSTER_SELECT_ROWS
  Query row = connection.query(
      !filter.ids.empty()
          ? "WITH wanted AS (SELECT id FROM jobs WHERE id IN (SELECT value FROM json_each(?4)) AND (?1 = '[]' OR state "
            "IN (SELECT value FROM json_each(?1))) AND (?5 = '' OR sweep = ?5) AND " MUSTER_PAGE
      : !filter.sweep.empty()
          ? "WITH wanted AS (SELECT id FROM jobs INDEXED BY jobs_by_sweep WHERE sweep = ?4 AND (?1 = '[]' OR state IN "
            "(SELECT value FROM json_each(?1))) AND " MUSTER_PAGE
      : filter.states.empty() ? "WITH wanted AS (SELECT id FROM jobs WHERE ?1 = '[]' AND " MUSTER_PAGE
                              : "WITH wanted AS (SELECT id FROM jobs INDEXED BY jobs_by_state WHERE state IN "
                                "(SELECT value FROM json_each(?1)) AND " MUSTER_PAGE);
#undef MUSTER_PAGE
  row.bind(states_json(filter.states));
  row.bind(filter.before);
  row.bind(filter.limit);
  if (!filter.ids.empty()) row.bind(nlohmann::json(filter.ids).dump());
  if (!filter.ids.empty() || !filter.sweep.empty()) row.bind(filter.sweep);
  return row.all(read_job_row);
}

std::int64_t read_count(Connection& connection, std::span<const core::JobState> states, const std::string& sweep) {
  Query row = connection.query(
      !sweep.empty() ? "SELECT count(*) FROM jobs WHERE sweep = ?2 AND (?1 = '[]' OR state IN "
                       "(SELECT value FROM json_each(?1))) AND " MUSTER_IS_THERE
      : states.empty()
          ? "SELECT count(*) FROM jobs WHERE ?1 = '[]' AND " MUSTER_IS_THERE
          : "SELECT count(*) FROM jobs WHERE state IN (SELECT value FROM json_each(?1)) AND " MUSTER_IS_THERE);
  row.bind(states_json(states));
  if (!sweep.empty()) row.bind(sweep);
  return row.first<std::int64_t>().value();
}

#define MUSTER_SELECT_EVENTS "SELECT id, job_id, version, at_ms, type, payload, state_after, text FROM events "

std::vector<StoredEvent> read_node_losses(Connection& connection, core::Time since, std::uint32_t limit) {
  return connection
      .query(MUSTER_SELECT_EVENTS
             "INDEXED BY node_losses WHERE type = 'node_lost' AND at_ms >= ?1 "
             "ORDER BY at_ms, id LIMIT ?2",
             since, limit)
      .all(read_stored_event);
}

std::vector<StoredEvent> read_events(Connection& connection, core::JobId job, std::int64_t after_id,
                                     std::uint32_t limit) {
  // Each of the two statements needs another index. The events of one job are found by (job_id, version); versions and
  // ids have the same order.
  return connection
      .query(job == 0 ? MUSTER_SELECT_EVENTS "WHERE ?1 = 0 AND id > ?2 ORDER BY id LIMIT ?3"
                      : MUSTER_SELECT_EVENTS "WHERE job_id = ?1 AND +id > ?2 ORDER BY version LIMIT ?3",
             job, after_id, limit)
      .all(read_stored_event);
}

Totals read_totals(Connection& connection, std::int64_t after_event, std::uint32_t most) {
  Totals totals;
  const auto count = [](Query row, std::map<std::string, std::uint64_t>& counts) {
    while (row.next()) row.get_to(1, counts[row.get<std::string>(0)]);
  };
  count(connection.query("SELECT state, count(*) FROM jobs WHERE " MUSTER_IS_THERE " GROUP BY state"), totals.jobs);
  count(connection.query("SELECT cause, count(*) FROM attempts WHERE state = 'ended' GROUP BY cause"),
        totals.attempts_ended);
  // Event ids have almost no gaps, so a range of ids bounds the work.
  Query events = connection.query(
      "SELECT type, count(*), max(id) FROM events WHERE id > ?1 AND id <= ?1 + ?2 GROUP BY type", after_event, most);
  totals.last_event = after_event;
  while (events.next()) {
    events.get_to(1, totals.events[events.get<std::string>(0)]);
    totals.last_event = std::max(totals.last_event, events.get<std::int64_t>(2));
  }
  return totals;
}

std::vector<PendingAction> read_pending_actions(Connection& connection) {
  return connection
      .query("SELECT id, job_id, kind, payload, state, share FROM actions WHERE state <> 'done' ORDER BY id")
      .all([](const Query& row) {
        PendingAction action;
        std::string kind, payload, state;
        std::optional<std::string> share;
        row.get_to(0, action.id, action.job, kind, payload, state, share);
        action.action = decode_action(kind, payload);
        if (state != to_string(ActionState::kLaunching)) return action;
        action.state = ActionState::kLaunching;
        if (share) action.share = decode_share(*share);
        return action;
      });
}

std::vector<PartitionRow> read_partitions(Connection& connection) {
  return connection.query("SELECT name, policy FROM partitions ORDER BY name").all([](const Query& row) {
    return PartitionRow{row.get<std::string>(0), row.get<std::string>(1)};
  });
}

std::vector<AuditRow> read_audit(Connection& connection, std::int64_t before_id, const std::string& partition,
                                 std::uint32_t limit) {
#define MUSTER_SELECT_AUDIT "SELECT id, at_ms, user, action, partition, before, after FROM audit WHERE id < ?1 AND "
  return connection
      .query(partition.empty() ? MUSTER_SELECT_AUDIT "?2 = '' ORDER BY id DESC LIMIT ?3"
                               : MUSTER_SELECT_AUDIT "partition = ?2 ORDER BY id DESC LIMIT ?3",
             before_id == 0 ? std::numeric_limits<std::int64_t>::max() : before_id, partition, limit)
      .all([](const Query& row) {
        AuditRow change;
        row.get_to(0, change.id, change.at, change.user, change.action, change.partition, change.before, change.after);
        return change;
      });
#undef MUSTER_SELECT_AUDIT
}

std::string read_secret(Connection& connection) {
  auto secret = connection.first<std::string>("SELECT value FROM meta WHERE key = 'secret'");
  if (!secret) throw Error(Error::Kind::kCorrupt, "the database has lost its secret: restore a backup");
  return *std::move(secret);
}

namespace {

/// Fewer free pages (4 MiB), or fewer than a quarter of all, are kept for the next rows.
constexpr std::int64_t kPagesKept = 1024;
constexpr std::int64_t kShareKept = 4;
constexpr const char* kGiveBackSome = "PRAGMA incremental_vacuum(512)";

/// An hour of an attempt that is due.
struct Due {
  core::JobId job = 0;
  core::AttemptNumber attempt = 0;
  std::int64_t hour = 0;
};

/// The oldest hour that ended `kept` ago; nullopt: none.
std::optional<Due> find_due(Connection& connection, bool is_summed, core::Time now, core::Millis kept) {
  Query row = connection.query(
      "SELECT job_id, attempt, hour FROM metric_hours WHERE is_summed = ? AND hour < ? ORDER BY hour LIMIT 1",
      is_summed, hour_of(now - kept));
  if (!row.next()) return std::nullopt;
  Due due;
  row.get_to(0, due.job, due.attempt, due.hour);
  return due;
}

/// The last step that was stored in this hour, or before it.
core::Step last_step_of(Connection& connection, const Due& due) {
  const auto before_next = connection.first<core::Step>(
      "SELECT after_step FROM metric_hours WHERE job_id = ? AND attempt = ? AND hour > ? ORDER BY hour LIMIT 1",
      due.job, due.attempt, due.hour);
  if (before_next) return *before_next;
  return connection
      .first<core::Step>("SELECT step FROM step_rows WHERE job_id = ? AND attempt = ? ORDER BY step DESC LIMIT 1",
                         due.job, due.attempt)
      .value_or(MetricBuckets::kNothingAged);
}

constexpr core::Step after(core::Step step) {
  return step == std::numeric_limits<core::Step>::max() ? step : step + 1;
}

/// Returns true when all rows of ranks up to this step are deleted.
bool delete_rank_rows(Connection& connection, const Due& due, core::Step last, std::uint32_t most) {
  const auto stop = connection.first<core::Step>(
      "SELECT step FROM rank_steps WHERE job_id = ? AND attempt = ? AND step <= ? ORDER BY step LIMIT 1 OFFSET ?",
      due.job, due.attempt, last, most);
  const auto until = stop.value_or(last);
  connection.run("DELETE FROM series_values WHERE job_id = ? AND attempt = ? AND step <= ?", due.job, due.attempt,
                 until);
  connection.run("DELETE FROM rank_steps WHERE job_id = ? AND attempt = ? AND step <= ?", due.job, due.attempt, until);
  return !stop;
}

void age_rank_rows(Connection& connection, MetricBuckets& buckets, const Due& due, std::uint32_t most) {
  const auto last = last_step_of(connection, due);
  auto& progress = buckets.of(connection, due.job, due.attempt);
  if (after(last) > progress.rank_rows_from) {
    progress.rank_rows_from = after(last);
    connection.run("UPDATE metric_attempts SET rank_rows_from = ? WHERE job_id = ? AND attempt = ?",
                   progress.rank_rows_from, due.job, due.attempt);
  }
  if (!delete_rank_rows(connection, due, last, most)) return;
  connection.run("UPDATE metric_hours SET is_summed = 1 WHERE job_id = ? AND attempt = ? AND hour = ?", due.job,
                 due.attempt, due.hour);
}

/// Returns true when all step rows before this step are deleted.
bool delete_step_rows(Connection& connection, const Due& due, core::Step end, std::uint32_t most) {
  const auto stop = connection.first<core::Step>(
      "SELECT step FROM step_rows WHERE job_id = ? AND attempt = ? AND step < ? ORDER BY step LIMIT 1 OFFSET ?",
      due.job, due.attempt, end, most);
  connection.run("DELETE FROM step_rows WHERE job_id = ? AND attempt = ? AND step < ?", due.job, due.attempt,
                 stop.value_or(end));
  return !stop;
}

/// `now`: in hours since 1970.
void age_step_rows(Connection& connection, MetricBuckets& buckets, const Due& due, std::int64_t now, std::uint32_t most,
                   const IsOver& is_over) {
  auto& progress = buckets.of(connection, due.job, due.attempt);
  const bool is_newest = due.hour >= progress.hour;
  const bool ends = is_newest && is_over(due.job, due.attempt);
  // Buckets may be missing since a series was declared anew.
  if (!buckets.settle_stored(connection, due.job, due.attempt, ends)) return;
  const auto settled = progress.settled[0];
  const auto end = ends ? settled : std::min(after(last_step_of(connection, due)), settled) / kWidths[0] * kWidths[0];
  if (end > std::max<core::Step>(0, progress.step_rows_from)) {
    progress.step_rows_from = end;
    connection.run("UPDATE metric_attempts SET step_rows_from = ? WHERE job_id = ? AND attempt = ?", end, due.job,
                   due.attempt);
  }
  if (end > 0 && !delete_step_rows(connection, due, end, most)) return;
  // It is silent, and may go on. Its newest steps are looked at again.
  if (is_newest && !ends) return buckets.put_off(connection, due.job, due.attempt, now);
  connection.run("DELETE FROM metric_hours WHERE job_id = ? AND attempt = ? AND hour = ?", due.job, due.attempt,
                 due.hour);
}

}  // namespace

std::int64_t hour_of(core::Time time) {
  return std::chrono::floor<std::chrono::hours>(time.time_since_epoch()).count();
}

bool age_metrics(Connection& connection, MetricBuckets& buckets, core::Time now, const MetricsKeep& keep,
                 std::uint32_t most, const IsOver& is_over) {
  if (const auto due = find_due(connection, false, now, keep.rank_rows)) {
    age_rank_rows(connection, buckets, *due, most);
    return true;
  }
  if (const auto due = find_due(connection, true, now, keep.step_rows)) {
    age_step_rows(connection, buckets, *due, hour_of(now), most, is_over);
    return true;
  }
  return false;
}

bool give_back_pages(Connection& connection) {
  auto& database = connection.database();
  const auto free = database.execAndGet("PRAGMA freelist_count").getInt64();
  const auto all = database.execAndGet("PRAGMA page_count").getInt64();
  if (free <= std::max(kPagesKept, all / kShareKept)) return false;
  database.exec(kGiveBackSome);
  return true;
}

}  // namespace store
