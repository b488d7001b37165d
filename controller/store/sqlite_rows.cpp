#include "store/sqlite_rows.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "store/action_codec.h"
#include "store/event_codec.h"

namespace store {

namespace {

// Selects the columns that read_job_row() reads, for the ids in `wanted`.
#define MUSTER_SELECT_ROWS                                                                                \
  "SELECT j.id, j.name, j.user, j.reason, j.is_command, j.state, j.version, j.last_checkpoint_step, "     \
  "j.submitted_at_ms, j.started_at_ms, j.ended_at_ms, j.next_attempt_at_ms, "                             \
  "a.number, a.state, a.cause, a.reason, a.reason_started, a.culprit, a.culprit_code, a.culprit_signal, " \
  "a.started_at_ms, a.running_at_ms, a.ended_at_ms, a.resumed_from_step, a.handle, a.queued_at_ms, "      \
  "a.scheduler_job, a.scheduler_element, j.sweep, j.sweep_index "                                         \
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
  return {row.time(at), decode_event(row.text(type), row.text(payload))};
}

/// Reads the columns id, job_id, version, at_ms, type, payload, state_after, text.
StoredEvent read_stored_event(const Query& row) {
  return {row.integer(0),         row.integer(1), row.integer(2), read_event(row, 3, 4, 5),
          job_state(row.text(6)), row.text(7),    row.text(5)};
}

/// Reads the columns of a job's newest attempt, which begin at `first`. They are null if the job has no attempt.
std::optional<core::Attempt> read_attempt(const Query& row, int first) {
  if (row.is_null(first)) return std::nullopt;
  core::Attempt attempt;
  attempt.number = static_cast<core::AttemptNumber>(row.integer(first));
  attempt.state = parse_name<core::AttemptState>(row.text(first + 1), core::attempt_state_from_string);
  attempt.cause = parse_name<core::Cause>(row.text(first + 2), core::cause_from_string);
  attempt.reason = row.text(first + 3);
  attempt.reason_started = row.text(first + 4);
  if (!row.is_null(first + 5)) attempt.culprit = static_cast<core::RankNumber>(row.integer(first + 5));
  if (!row.is_null(first + 6)) {
    attempt.culprit_exit = {static_cast<int>(row.integer(first + 6)), static_cast<int>(row.integer(first + 7))};
  }
  attempt.started_at = row.time_or_none(first + 8);
  attempt.running_at = row.time_or_none(first + 9);
  attempt.ended_at = row.time_or_none(first + 10);
  if (row.integer(first + 11) >= 0) attempt.resumed_from_step = row.integer(first + 11);
  attempt.handle = row.text(first + 12);
  attempt.queued_at = row.time_or_none(first + 13);
  if (!row.is_null(first + 14)) {
    attempt.scheduler_job.emplace().number = static_cast<std::uint64_t>(row.integer(first + 14));
    if (!row.is_null(first + 15)) attempt.scheduler_job->element = static_cast<std::uint32_t>(row.integer(first + 15));
  }
  return attempt;
}

JobRow read_job_row(const Query& row) {
  JobRow job;
  job.id = row.integer(0);
  job.name = row.text(1);
  job.user = row.text(2);
  job.reason = row.text(3);
  job.is_command = row.integer(4) != 0;
  job.state = job_state(row.text(5));
  job.version = row.integer(6);
  job.last_checkpoint_step = row.integer(7);
  job.submitted_at = row.time(8);
  job.started_at = row.time_or_none(9);
  job.ended_at = row.time_or_none(10);
  job.next_attempt_at = row.time_or_none(11);
  job.newest_attempt = read_attempt(row, 12);
  if (!row.is_null(28)) {
    job.sweep = row.text(28);
    job.sweep_index = static_cast<std::uint32_t>(row.integer(29));
  }
  return job;
}

}  // namespace

std::optional<core::JobId> read_request(Connection& connection, const std::string& request_id) {
  Query row = connection.query("SELECT id FROM jobs WHERE request_id = ?");
  if (!row.with(request_id).next()) return std::nullopt;
  return row.integer(0);
}

core::JobId read_next_job_id(Connection& connection) {
  Query row = connection.query("SELECT ifnull(max(id), 0) + 1 FROM jobs");
  row.next();
  return row.integer(0);
}

std::optional<core::Job> read_job(Connection& connection, core::JobId id) {
  Query row = connection.query("SELECT at_ms, type, payload FROM events WHERE job_id = ? ORDER BY version");
  row.with(id);
  std::optional<core::Job> job;
  while (row.next()) {
    if (!job) job.emplace().id = id;
    *job = core::apply(std::move(*job), read_event(row, 0, 1, 2)).job;
  }
  return job;
}

std::optional<std::string> read_spec(Connection& connection, core::JobId id) {
  Query row = connection.query("SELECT spec_json FROM jobs WHERE id = ?");
  if (!row.with(id).next()) return std::nullopt;
  return row.text(0);
}

std::vector<core::Job> read_open_jobs(Connection& connection) {
  Query row = connection.query(
      "SELECT job_id, at_ms, type, payload FROM events WHERE job_id IN (SELECT id FROM jobs WHERE state IN "
      "(SELECT value FROM json_each(?))) ORDER BY job_id, version");
  row.with(kOpenStates);
  std::vector<core::Job> jobs;
  while (row.next()) {
    if (jobs.empty() || jobs.back().id != row.integer(0)) jobs.emplace_back().id = row.integer(0);
    jobs.back() = core::apply(std::move(jobs.back()), read_event(row, 1, 2, 3)).job;
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
  const std::string states = states_json(filter.states), ids = nlohmann::json(filter.ids).dump();
  row.with(states).with(filter.before).with(std::int64_t{filter.limit});
  if (!filter.ids.empty()) {
    row.with(ids).with(filter.sweep);
  } else if (!filter.sweep.empty()) {
    row.with(filter.sweep);
  }
  std::vector<JobRow> rows;
  while (row.next()) rows.push_back(read_job_row(row));
  return rows;
}

std::int64_t read_count(Connection& connection, std::span<const core::JobState> states, const std::string& sweep) {
  Query row = connection.query(
      !sweep.empty() ? "SELECT count(*) FROM jobs WHERE sweep = ?2 AND (?1 = '[]' OR state IN "
                       "(SELECT value FROM json_each(?1))) AND " MUSTER_IS_THERE
      : states.empty()
          ? "SELECT count(*) FROM jobs WHERE ?1 = '[]' AND " MUSTER_IS_THERE
          : "SELECT count(*) FROM jobs WHERE state IN (SELECT value FROM json_each(?1)) AND " MUSTER_IS_THERE);
  const std::string wanted = states_json(states);
  row.with(wanted);
  if (!sweep.empty()) row.with(sweep);
  row.next();
  return row.integer(0);
}

std::vector<StoredEvent> read_node_losses(Connection& connection, core::Time since, std::uint32_t limit) {
  Query row = connection.query(
      "SELECT id, job_id, version, at_ms, type, payload, state_after, text FROM events INDEXED BY node_losses "
      "WHERE type = 'node_lost' AND at_ms >= ?1 ORDER BY at_ms, id LIMIT ?2");
  row.with(since).with(std::int64_t{limit});
  std::vector<StoredEvent> events;
  while (row.next()) events.push_back(read_stored_event(row));
  return events;
}

std::vector<StoredEvent> read_events(Connection& connection, core::JobId job, std::int64_t after_id,
                                     std::uint32_t limit) {
  // Each of the two statements needs another index. The events of one job are found by (job_id, version); versions and
  // ids have the same order.
  Query row =
      connection.query(job == 0 ? "SELECT id, job_id, version, at_ms, type, payload, state_after, text FROM events "
                                  "WHERE ?1 = 0 AND id > ?2 ORDER BY id LIMIT ?3"
                                : "SELECT id, job_id, version, at_ms, type, payload, state_after, text FROM events "
                                  "WHERE job_id = ?1 AND +id > ?2 ORDER BY version LIMIT ?3");
  row.with(job).with(after_id).with(std::int64_t{limit});
  std::vector<StoredEvent> events;
  while (row.next()) {
    events.push_back(read_stored_event(row));
  }
  return events;
}

Totals read_totals(Connection& connection, std::int64_t after_event, std::uint32_t most) {
  Totals totals;
  Query jobs = connection.query("SELECT state, count(*) FROM jobs WHERE " MUSTER_IS_THERE " GROUP BY state");
  while (jobs.next()) totals.jobs[jobs.text(0)] = static_cast<std::uint64_t>(jobs.integer(1));
  Query ends = connection.query("SELECT cause, count(*) FROM attempts WHERE state = 'ended' GROUP BY cause");
  while (ends.next()) totals.attempts_ended[ends.text(0)] = static_cast<std::uint64_t>(ends.integer(1));
  // Event ids have almost no gaps, so a range of ids bounds the work.
  Query events =
      connection.query("SELECT type, count(*), max(id) FROM events WHERE id > ?1 AND id <= ?1 + ?2 GROUP BY type");
  events.with(after_event).with(std::int64_t{most});
  totals.last_event = after_event;
  while (events.next()) {
    totals.events[events.text(0)] = static_cast<std::uint64_t>(events.integer(1));
    totals.last_event = std::max(totals.last_event, events.integer(2));
  }
  return totals;
}

std::int64_t read_last_event_id(Connection& connection) {
  Query row = connection.query("SELECT ifnull(max(id), 0) FROM events");
  row.next();
  return row.integer(0);
}

std::vector<PendingAction> read_pending_actions(Connection& connection) {
  Query row =
      connection.query("SELECT id, job_id, kind, payload, state FROM actions WHERE state <> 'done' ORDER BY id");
  std::vector<PendingAction> actions;
  while (row.next()) {
    const bool launching = row.text(4) == to_string(ActionState::kLaunching);
    actions.push_back({row.integer(0), row.integer(1), decode_action(row.text(2), row.text(3)),
                       launching ? ActionState::kLaunching : ActionState::kPending});
  }
  return actions;
}

std::string read_secret(Connection& connection) {
  Query row = connection.query("SELECT value FROM meta WHERE key = 'secret'");
  if (!row.next()) throw Error(Error::Kind::kCorrupt, "the database has lost its secret: restore a backup");
  return row.text(0);
}

std::string read_place(Connection& connection) {
  Query row = connection.query("SELECT value FROM meta WHERE key = 'place'");
  return row.next() ? row.text(0) : std::string();
}

}  // namespace store
