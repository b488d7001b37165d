// Goal: the tables behind lists hold exactly the fold of the events.
// Method: random events go into a database file; the test reads the tables with SQL and compares them with jobs folded
// from the stored events.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>

#include <map>

#include "controller/store/codec.h"
#include "controller/store/sqlite_store.h"
#include "tests/controller/core/random_events.h"
#include "tests/controller/store/saga.h"
#include "tests/temporary_folder.h"

namespace test {
namespace {

constexpr std::uint32_t kJobs = 30;
constexpr int kEventsPerJob = 40;

/// The columns of a row as text.
std::string row_text(const SQLite::Statement& row) {
  std::string text;
  for (int i = 0; i < row.getColumnCount(); ++i) {
    text += (row.isColumnNull(i) ? std::string("-") : row.getColumn(i).getString()) + "|";
  }
  return text;
}

std::string optional_text(const std::optional<core::Time>& time) {
  return time ? std::to_string(time->time_since_epoch().count()) : "-";
}
template <typename T>
std::string number_text(const std::optional<T>& number) {
  return number ? std::to_string(*number) : "-";
}

std::string job_text(const core::Job& job) {
  std::optional<core::Time> started;
  for (const auto& attempt : job.attempts) {
    if (!started) started = attempt.started_at;
  }
  return std::to_string(job.id) + "|" + job.name + "|" + job.user + "|" + std::to_string(job.is_command) + "|" +
         std::string(to_string(job.state)) + "|" + job.reason + "|" + std::to_string(job.version) + "|" +
         std::to_string(job.last_checkpoint_step) + "|" + optional_text(job.submitted_at) + "|" +
         optional_text(started) + "|" + optional_text(job.ended_at) + "|" + optional_text(job.next_attempt_at) + "|" +
         std::to_string(job.program.total_steps) + "|" + job.program.status + "|" +
         (job.sweep.sweep.empty() ? "-|-|" : job.sweep.sweep + "|" + std::to_string(job.sweep.index) + "|");
}

std::string attempt_text(const core::Job& job, const core::Attempt& attempt) {
  std::optional<int> code, signal;
  if (attempt.culprit_exit) {
    code = attempt.culprit_exit->code;
    signal = attempt.culprit_exit->signal;
  }
  return std::to_string(job.id) + "|" + std::to_string(attempt.number) + "|" + std::string(to_string(attempt.state)) +
         "|" + std::string(to_string(attempt.cause)) + "|" + attempt.reason + "|" + attempt.reason_started + "|" +
         number_text(attempt.culprit) + "|" + number_text(code) + "|" + number_text(signal) + "|" +
         optional_text(attempt.started_at) + "|" + optional_text(attempt.running_at) + "|" +
         optional_text(attempt.ended_at) + "|" + std::to_string(attempt.resumed_from_step.value_or(-1)) + "|" +
         attempt.handle + "|" + optional_text(attempt.queued_at) + "|" +
         (attempt.scheduler_job ? std::to_string(attempt.scheduler_job->number) : "-") + "|" +
         number_text(attempt.scheduler_job ? attempt.scheduler_job->element : std::nullopt) + "|";
}

std::vector<std::string> rows(SQLite::Database& database, const char* sql) {
  SQLite::Statement query(database, sql);
  std::vector<std::string> result;
  while (query.executeStep()) result.push_back(row_text(query));
  return result;
}

std::map<core::JobId, core::Job> fold(SQLite::Database& database) {
  std::map<core::JobId, core::Job> jobs;
  SQLite::Statement query(database, "SELECT job_id, at_ms, type, payload FROM events ORDER BY id");
  while (query.executeStep()) {
    auto& job = jobs[query.getColumn(0).getInt64()];
    job.id = query.getColumn(0).getInt64();
    job = core::apply(job, {at_ms(query.getColumn(1).getInt64()),
                            store::decode_event(query.getColumn(2).getString(), query.getColumn(3).getString())})
              .job;
  }
  return jobs;
}

TEST(Projection, EveryTableEqualsAFoldOfTheEvents) {
  TemporaryFolder folder;
  const auto file = folder.path() / "muster.db";
  std::map<core::JobId, core::Job> live;
  {
    const auto store = store::open_sqlite_store(file);
    std::vector<store::Commit> group;
    for (std::uint32_t seed = 1; seed <= kJobs; ++seed) {
      RandomEvents random(seed);
      Story story(seed);
      for (int i = 0; i < kEventsPerJob; ++i) {
        story.wait(random.pause()).tell(i == 0 ? core::EventBody(random.submission()) : random.next(story.job));
        group.push_back({story.events.back(), store::shared(story.last), "", i == 0 ? "{}" : ""});
      }
      live[story.job.id] = story.job;
    }
    store->append(group);
    for (const auto& [id, job] : live) EXPECT_EQ(store->load(id), job);
  }
  SQLite::Database database(file.string());
  const auto folded = fold(database);
  EXPECT_EQ(folded, live);
  std::vector<std::string> jobs, attempts;
  for (const auto& [id, job] : folded) {
    jobs.push_back(job_text(job));
    for (const auto& attempt : job.attempts) attempts.push_back(attempt_text(job, attempt));
  }
  EXPECT_EQ(rows(database,
                 "SELECT id, name, user, is_command, state, reason, version, last_checkpoint_step, submitted_at_ms, "
                 "started_at_ms, ended_at_ms, next_attempt_at_ms, total_steps, program_status, sweep, sweep_index FROM "
                 "jobs ORDER BY id"),
            jobs);
  EXPECT_EQ(rows(database,
                 "SELECT job_id, number, state, cause, reason, reason_started, culprit, culprit_code, culprit_signal, "
                 "started_at_ms, running_at_ms, ended_at_ms, resumed_from_step, handle, queued_at_ms, scheduler_job, "
                 "scheduler_element FROM attempts ORDER BY job_id, number"),
            attempts);
  EXPECT_GT(attempts.size(), kJobs) << "lives too tame to show anything";
}

TEST(Projection, OpenJobsAfterARestartAreThoseThatHadNotEnded) {
  TemporaryFolder folder;
  std::vector<core::Job> open;
  {
    const auto store = store::open_sqlite_store(folder.path() / "muster.db");
    for (std::uint32_t seed = 1; seed <= kJobs; ++seed) {
      RandomEvents random(seed);
      Saga saga(*store);
      saga.tell(random.submission());
      for (int i = 0; i < 12; ++i) saga.tell(random.next(saga.job()));
      if (!is_ended(saga.job().state)) open.push_back(saga.job());
    }
  }
  const auto store = store::open_sqlite_store(folder.path() / "muster.db");
  EXPECT_EQ(store->load_open(), open);
  EXPECT_GT(open.size(), 2U);
  EXPECT_LT(open.size(), kJobs);
}

}  // namespace
}  // namespace test
