#include "store/sqlite_writes.h"

#include "core/text.h"
#include "store/action_codec.h"
#include "store/event_codec.h"
#include "store/projection.h"

namespace store {

namespace {

/// resumed_from_step before the ranks have reported it.
constexpr std::int64_t kNotTold = -1;

std::int64_t job_version(Connection& connection, core::JobId id) {
  Query row = connection.query("SELECT version FROM jobs WHERE id = ?");
  return row.with(id).next() ? row.integer(0) : 0;
}

void require_new_request(Connection& connection, const std::string& request_id) {
  Query row = connection.query("SELECT 1 FROM jobs WHERE request_id = ?");
  if (row.with(request_id).next()) throw request_taken(request_id);
}

void insert_job(Connection& connection, const Commit& commit, const JobRow& job) {
  if (!commit.request_id.empty()) require_new_request(connection, commit.request_id);
  Query row = connection.query(
      "INSERT INTO jobs (id, request_id, spec_json, name, user, is_command, state, reason, version, "
      "last_checkpoint_step, submitted_at_ms, sweep, sweep_index) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  row.with(job.id);
  commit.request_id.empty() ? row.with_null() : row.with(commit.request_id);
  row.with(commit.spec_json).with(job.name).with(job.user).with(std::int64_t{job.is_command});
  row.with(to_string(job.state)).with(job.reason).with(job.version);
  row.with(job.last_checkpoint_step).with(job.submitted_at);
  job.sweep.empty() ? row.with_null() : row.with(job.sweep);
  job.sweep.empty() ? row.with_null() : row.with(std::int64_t{job.sweep_index});
  row.run();
}

void update_job(Connection& connection, const JobRow& job) {
  Query row = connection.query(
      "UPDATE jobs SET state = ?, reason = ?, version = ?, last_checkpoint_step = ?, started_at_ms = ?, "
      "ended_at_ms = ?, next_attempt_at_ms = ? WHERE id = ?");
  row.with(to_string(job.state)).with(job.reason).with(job.version).with(job.last_checkpoint_step);
  row.with(job.started_at).with(job.ended_at).with(job.next_attempt_at).with(job.id).run();
}

/// Marks the job as removed and deletes its spec, which may hold secrets.
void mark_removed(Connection& connection, const JobRow& job) {
  connection.query("INSERT INTO removed_jobs (job_id, at_ms) VALUES (?, ?) ON CONFLICT DO NOTHING")
      .with(job.id)
      .with(*job.removed_at)
      .run();
  connection.query("UPDATE jobs SET spec_json = '{}' WHERE id = ?").with(job.id).run();
}

void upsert_attempt(Connection& connection, core::JobId job, const core::Attempt& attempt) {
  Query row = connection.query(
      "INSERT OR REPLACE INTO attempts (job_id, number, state, cause, reason, reason_started, culprit, culprit_code, "
      "culprit_signal, started_at_ms, running_at_ms, ended_at_ms, resumed_from_step, handle, queued_at_ms, "
      "scheduler_job, scheduler_element) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  row.with(job).with(std::int64_t{attempt.number}).with(to_string(attempt.state)).with(to_string(attempt.cause));
  row.with(attempt.reason).with(attempt.reason_started);
  attempt.culprit ? row.with(std::int64_t{*attempt.culprit}) : row.with_null();
  attempt.culprit_exit ? row.with(std::int64_t{attempt.culprit_exit->code}) : row.with_null();
  attempt.culprit_exit ? row.with(std::int64_t{attempt.culprit_exit->signal}) : row.with_null();
  row.with(attempt.started_at).with(attempt.running_at).with(attempt.ended_at);
  row.with(attempt.resumed_from_step.value_or(kNotTold)).with(attempt.handle).with(attempt.queued_at);
  const auto& job_there = attempt.scheduler_job;
  job_there ? row.with(static_cast<std::int64_t>(job_there->number)) : row.with_null();
  job_there && job_there->element ? row.with(std::int64_t{*job_there->element}) : row.with_null();
  row.run();
}

std::int64_t insert_event(Connection& connection, const Commit& commit) {
  const core::Job& job = commit.applied->job;
  const std::string payload = encode_event(commit.event.body);
  Query row = connection.query(
      "INSERT INTO events (job_id, version, at_ms, type, attempt, payload, state_after, text) "
      "VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
  row.with(job.id).with(job.version).with(commit.event.at).with(type_name(commit.event.body));
  row.with(std::int64_t{attempt_of(commit.event.body)}).with(payload).with(to_string(job.state));
  row.with(commit.applied->text).run();
  return connection.database().getLastInsertRowid();
}

void insert_action(Connection& connection, std::int64_t event_id, std::int64_t index, core::JobId job,
                   const core::Action& action) {
  const std::string payload = encode_action(action);
  Query row = connection.query("INSERT INTO actions (event_id, idx, job_id, kind, payload) VALUES (?, ?, ?, ?, ?)");
  row.with(event_id).with(index).with(job).with(action_kind(action)).with(payload).run();
}

}  // namespace

std::int64_t write_commit(Connection& connection, const Commit& commit) {
  const core::Job& job = commit.applied->job;
  require_next(job, job_version(connection, job.id));
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
    insert_action(connection, event_id, index++, job.id, action);
  }
  return event_id;
}

void write_action_state(Connection& connection, std::int64_t action_id, ActionState state, core::Time at) {
  Query row = connection.query("UPDATE actions SET state = ?, done_at_ms = ? WHERE id = ? AND state <> 'done'");
  row.with(to_string(state));
  state == ActionState::kDone ? row.with(at) : row.with_null();
  row.with(action_id).run();
}

void write_secret(Connection& connection, const std::string& secret) {
  connection.query("INSERT INTO meta (key, value) VALUES ('secret', ?) ON CONFLICT DO NOTHING").with(secret).run();
}

void change_secret(Connection& connection, const std::string& secret) {
  connection.query("UPDATE meta SET value = ? WHERE key = 'secret'").with(secret).run();
}

void write_place(Connection& connection, const std::string& place) {
  connection
      .query("INSERT INTO meta (key, value) VALUES ('place', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value")
      .with(place)
      .run();
}

}  // namespace store
