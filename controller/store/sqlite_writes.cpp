#include "store/sqlite_writes.h"

#include "store/action_codec.h"
#include "store/event_codec.h"
#include "store/projection.h"
#include "store/sqlite_rows.h"

namespace store {

namespace {

/// resumed_from_step before the ranks have reported it.
constexpr std::int64_t kNotTold = -1;

void insert_job(Connection& connection, const Commit& commit, const JobRow& job) {
  const auto request = commit.request_id.empty() ? std::nullopt : std::optional(commit.request_id);
  if (request && read_request(connection, *request)) throw request_taken(*request);
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
      "UPDATE jobs SET state = ?, reason = ?, version = ?, last_checkpoint_step = ?, started_at_ms = ?, "
      "ended_at_ms = ?, next_attempt_at_ms = ? WHERE id = ?",
      job.state, job.reason, job.version, job.last_checkpoint_step, job.started_at, job.ended_at, job.next_attempt_at,
      job.id);
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

}  // namespace

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

void write_action_state(Connection& connection, std::int64_t action_id, ActionState state, core::Time at) {
  const auto done_at = state == ActionState::kDone ? std::optional(at) : std::nullopt;
  connection.run("UPDATE actions SET state = ?, done_at_ms = ? WHERE id = ? AND state <> 'done'", state, done_at,
                 action_id);
}

void write_partition_change(Connection& connection, const AuditRow& change) {
  connection.run("INSERT INTO audit (at_ms, user, action, partition, before, after) VALUES (?, ?, ?, ?, ?, ?)",
                 change.at, change.user, change.action, change.partition, change.before, change.after);
  if (change.after.empty()) {
    connection.run("DELETE FROM partitions WHERE name = ?", change.partition);
  } else {
    connection.run("INSERT OR REPLACE INTO partitions (name, policy) VALUES (?, ?)", change.partition, change.after);
  }
}

void write_secret(Connection& connection, const std::string& secret) {
  connection.run("INSERT INTO meta (key, value) VALUES ('secret', ?) ON CONFLICT DO NOTHING", secret);
}

void change_secret(Connection& connection, const std::string& secret) {
  connection.run("UPDATE meta SET value = ? WHERE key = 'secret'", secret);
}

void write_place(Connection& connection, const std::string& place) {
  connection.run(
      "INSERT INTO meta (key, value) VALUES ('place', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
      place);
}

}  // namespace store
