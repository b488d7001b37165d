// Goal: a sound database is opened. Any other is refused with a message that helps, and its file is not changed.
#include <SQLiteCpp/SQLiteCpp.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "controller/store/sqlite_file.h"
#include "controller/store/sqlite_store.h"
#include "tests/controller/store/error_of.h"
#include "tests/controller/store/saga.h"
#include "tests/temporary_folder.h"

namespace test {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;
using Kind = store::Error::Kind;

class SqliteOpen : public testing::Test {
 protected:
  TemporaryFolder folder_;
  const fs::path file_ = folder_.path() / "muster.db";

  /// A database with some content, closed cleanly.
  void fill(int jobs = 40) {
    const auto store = store::open_sqlite_store(file_);
    for (int i = 0; i < jobs; ++i) {
      Saga saga(*store, "request-" + std::to_string(i));
      saga.tell(submitted());
      saga.run(1);
    }
  }
  /// Expects that opening fails with this kind, names the file, and does not change it. Returns the message.
  std::string refused(Kind kind) { return refused(kind, file_); }
  std::string refused(Kind kind, const fs::path& file) {
    const std::string before = read_file(file);
    const auto error = error_of([&] { store::open_sqlite_store(file_); });
    EXPECT_TRUE(error) << "it opened";
    if (!error) return "";
    EXPECT_EQ(error->kind(), kind) << error->what();
    EXPECT_THAT(error->what(), HasSubstr(file.string()));
    EXPECT_TRUE(read_file(file) == before) << "the file was changed";
    return error->what();
  }
  void exec(const std::string& sql) { SQLite::Database(file_.string(), SQLite::OPEN_READWRITE).exec(sql); }
};

TEST_F(SqliteOpen, WhatWasWrittenIsThereAfterARestart) {
  std::string secret;
  core::Job job;
  {
    const auto store = store::open_sqlite_store(file_);
    Saga saga(*store, "r");
    saga.tell(submitted());
    saga.run(1);
    job = saga.job();
    secret = store->secret();
    const store::MetricRow row{.job = 1, .attempt = 1, .rank = 0, .step = 1, .values = {{"loss", 2.5}}};
    store->add_metrics({&row, 1});
  }
  EXPECT_FALSE(fs::exists(file_.string() + "-wal")) << "a clean close folds the log file into the database";
  const auto store = store::open_sqlite_store(file_);
  EXPECT_EQ(store->load(1), job);
  EXPECT_EQ(store->find_request("r"), 1);
  EXPECT_EQ(store->secret(), secret);
  EXPECT_EQ(store->metrics(1, 0, 0, 0, 10).size(), 1U);
  EXPECT_EQ(store->pending_actions().size(), 1U);
  EXPECT_EQ(store->schema_version(), static_cast<std::int64_t>(store::migrations().size()));
}

// Up to version 12 each plain key of [slurm] had a field of its own.
TEST_F(SqliteOpen, WhatAnEarlierVersionStoredOfSlurmIsKept) {
  fill(2);
  exec(
      R"(UPDATE jobs SET spec_json = '{"name":"a","slurm":{"partition":"p","qos":"","mem_bytes":1048576,"mem_per_cpu_bytes":0,
"exclusive":true,"nice":0,"setup":["x"],"options":{"hint":"y"}}}' WHERE id = 1)");
  const auto other = store::open_sqlite_store(file_)->spec_json(2);
  exec("PRAGMA user_version = 12");
  const auto store = store::open_sqlite_store(file_);
  EXPECT_EQ(store->spec_json(1).value_or(""),
            R"({"name":"a","slurm":{"setup":["x"],"options":{"hint":"y"},"values":{"slurm.partition":{"text":"p"},)"
            R"("slurm.mem":{"whole":1048576},"slurm.exclusive":{"flag":true},"slurm.nice":{"whole":0}}}})");
  EXPECT_EQ(store->spec_json(2), other);
}

TEST_F(SqliteOpen, OnlyTheOwnerMayReadIt) {
  const auto store = store::open_sqlite_store(file_);
  struct stat status {};
  for (const char* name : {"muster.db", "muster.db-wal", "muster.db-shm", "muster.db.lock", "metrics.db",
                           "metrics.db-wal", "metrics.db-shm"}) {
    ASSERT_EQ(stat((folder_.path() / name).c_str(), &status), 0) << name;
    EXPECT_EQ(status.st_mode & 0777, 0600U) << name;
  }
}

TEST_F(SqliteOpen, ASecondOpenNamesTheProcessThatHoldsIt) {
  const auto store = store::open_sqlite_store(file_);
  const auto error = error_of([&] { store::open_sqlite_store(file_); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), Kind::kInUse);
  EXPECT_THAT(error->what(), HasSubstr("process " + std::to_string(getpid())));
  EXPECT_EQ(store->next_job_id(), 1) << "the first one goes on";
}

// An admin cleans up, or a lock on a network folder was lost.
TEST_F(SqliteOpen, ALockFileThatWasRemovedLetsNoSecondOneIn) {
  const auto store = store::open_sqlite_store(file_);
  fs::rename(file_.string() + ".lock", file_.string() + ".lock.old");
  Saga saga(*store, "r");
  saga.tell(submitted());
  const auto error = error_of([&] { store::open_sqlite_store(file_); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), Kind::kInUse);
  EXPECT_THAT(error->what(), HasSubstr(file_.string() + ".lock was moved away or removed"));
  saga.run(1);
  EXPECT_EQ(store->next_job_id(), 2) << "the first one goes on";
}

// A child of a killed musterd holds the lock between its fork and its exec.
TEST_F(SqliteOpen, ALockThatIsLetGoInAMomentIsWaitedFor) {
  auto store = store::open_sqlite_store(file_);
  std::jthread other([&] {
    std::this_thread::sleep_for(
        std::chrono::milliseconds(50));  // the store opens whether the lock was freed before or after
    store.reset();
  });
  EXPECT_NE(store::open_sqlite_store(file_), nullptr);
}

TEST_F(SqliteOpen, TheLockEndsWithTheStore) {
  store::open_sqlite_store(file_).reset();
  EXPECT_NE(store::open_sqlite_store(file_), nullptr);
}

TEST_F(SqliteOpen, ARefusedOpenReleasesTheLock) {
  write_file(file_, std::string(5000, 'g'));
  refused(Kind::kCorrupt);
  fs::remove(file_);
  EXPECT_NE(store::open_sqlite_store(file_), nullptr);
}

TEST_F(SqliteOpen, AFolderThatIsNotThereIsNamed) {
  const auto error = error_of([&] { store::open_sqlite_store(folder_.path() / "none" / "muster.db"); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr((folder_.path() / "none").string()));
}

TEST_F(SqliteOpen, GarbageIsRefusedAndLeftAlone) {
  for (const std::size_t size : {1U, 99U, 100U, 511U, 5000U, 100000U}) {
    write_file(file_, std::string(size, 'g'));
    EXPECT_THAT(refused(Kind::kCorrupt), HasSubstr("restore a backup"));
  }
}

TEST_F(SqliteOpen, ATruncatedDatabaseIsRefusedAndLeftAlone) {
  fill();
  fs::resize_file(file_, fs::file_size(file_) / 2);
  refused(Kind::kCorrupt);
}

TEST_F(SqliteOpen, AnOverwrittenPageIsRefusedAndLeftAlone) {
  fill();
  const std::string sound = read_file(file_);
  constexpr std::size_t kPage = 4096;
  int damaged = 0;
  for (std::size_t at = 0; at + kPage <= sound.size(); at += kPage) {
    std::string broken = sound;
    for (std::size_t i = at; i < at + kPage; ++i) broken[i] = static_cast<char>(~broken[i]);
    write_file(file_, broken);
    refused(Kind::kCorrupt);
    ++damaged;
  }
  EXPECT_GT(damaged, 5);
}

/// Damages a page that only queries of metrics read, so that opening without a check does not find it.
void damage_the_last_page(const fs::path& file) {
  std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
  stream.seekp(-2000, std::ios::end);
  stream << std::string(1900, '\xff');
}

TEST_F(SqliteOpen, AllOfItIsReadAfterAnEndThatWasNotOrderlyAndOnlyThen) {
  fill();
  {
    const auto store = store::open_sqlite_store(file_);
    std::vector<store::MetricRow> rows;
    for (core::Step step = 1; step <= 5000; ++step) rows.push_back({.job = 1, .attempt = 1, .step = step});
    store->add_metrics(rows);
  }
  const fs::path file = folder_.path() / "metrics.db", mark = file.string() + ".clean";
  ASSERT_TRUE(fs::exists(mark));
  struct stat before {};
  ASSERT_EQ(stat(file.c_str(), &before), 0);
  damage_the_last_page(file);
  const auto damaged = read_file(file);
  // Only the modification time tells of the change. With the old time, the database is not checked.
  const timespec times[] = {before.st_atim, before.st_mtim};
  ASSERT_EQ(utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
  EXPECT_NO_THROW(store::open_sqlite_store(file_));
  write_file(file, damaged);
  refused(Kind::kCorrupt, file);
  fs::remove(mark);
  refused(Kind::kCorrupt, file);
}

TEST_F(SqliteOpen, WhoIsKilledLeavesNoWordOfAnOrderlyEnd) {
  fill(1);
  const fs::path mark = file_.string() + ".clean", metrics_mark = folder_.path() / "metrics.db.clean";
  EXPECT_TRUE(fs::exists(mark));
  EXPECT_TRUE(fs::exists(metrics_mark));
  const auto store = store::open_sqlite_store(file_);
  EXPECT_FALSE(fs::exists(mark));
  EXPECT_FALSE(fs::exists(metrics_mark));
}

TEST_F(SqliteOpen, AnotherProgramsDatabaseIsRefusedAndLeftAlone) {
  SQLite::Database(file_.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE).exec("CREATE TABLE recipes (name)");
  EXPECT_THAT(refused(Kind::kCorrupt), HasSubstr("another program"));
}

TEST_F(SqliteOpen, ANewerSchemaIsRefusedAndLeftAlone) {
  fill(1);
  exec("PRAGMA user_version = 99");
  EXPECT_THAT(refused(Kind::kNewer), HasSubstr("schema version 99"));
}

TEST_F(SqliteOpen, AnEmptyFileIsANewDatabase) {
  write_file(file_, "");
  EXPECT_EQ(store::open_sqlite_store(file_)->next_job_id(), 1);
}

TEST_F(SqliteOpen, AMigrationHappensWholeOrNotAtAll) {
  SQLite::Database database(file_.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  const std::string_view broken[] = {"CREATE TABLE one (a)", "CREATE TABLE two (a); INSERT INTO none VALUES (1)"};
  EXPECT_THROW(store::migrate(database, broken), SQLite::Exception);
  EXPECT_EQ(store::stored_version(database), 1);
  EXPECT_TRUE(database.tableExists("one"));
  EXPECT_FALSE(database.tableExists("two"));
  const std::string_view mended[] = {"never run again", "CREATE TABLE two (a)", "CREATE TABLE three (a)"};
  store::migrate(database, mended);
  EXPECT_EQ(store::stored_version(database), 3);
  EXPECT_TRUE(database.tableExists("three"));
}

/// A database of the first version: its schema and two jobs, one of which runs.
void write_first_version(const fs::path& file) {
  SQLite::Database database(file.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  store::migrate(database, std::span(store::migrations()).first(1));
  database.exec(R"(
    INSERT INTO jobs (id, request_id, spec_json, name, user, is_command, state, reason, version, last_checkpoint_step,
                      submitted_at_ms, started_at_ms, ended_at_ms) VALUES
      (1, 'r1', '{"name":"chess"}', 'chess', 'anna', 1, 'cancelled', 'cancelled by anna', 2, 0, 10, NULL, 20),
      (2, 'r2', '{"name":"go"}', 'go', 'ben', 1, 'running', 'attempt 1: running', 2, 0, 30, 40, NULL);
    INSERT INTO attempts (job_id, number, state, cause, reason, reason_started, started_at_ms, running_at_ms,
                          resumed_from_step, handle) VALUES
      (2, 1, 'running', 'none', 'running', 'submitted', 40, 40, 0, 'handle');
    INSERT INTO events (id, job_id, version, at_ms, type, attempt, payload, state_after, text) VALUES
      (1, 1, 1, 10, 'job_submitted', 0, '{"v":1,"name":"chess","user":"anna","is_command":true}', 'pending', 'a'),
      (2, 1, 2, 20, 'cancel_requested', 0, '{"v":1,"user":"anna"}', 'cancelled', 'b'),
      (3, 2, 1, 30, 'job_submitted', 0, '{"v":1,"name":"go","user":"ben","is_command":true}', 'pending', 'c'),
      (4, 2, 2, 40, 'attempt_launched', 1, '{"v":1,"attempt":1,"handle":"handle","node":"n","pids":[7]}', 'running',
       'd');
    INSERT INTO actions (event_id, idx, job_id, kind, payload, done_at_ms) VALUES
      (1, 0, 1, 'start_attempt', '{"attempt":1,"not_before_ms":10}', 15),
      (2, 0, 1, 'stop_attempt', '{"attempt":1,"save":false,"reason":"cancelled by anna"}', NULL);
    INSERT INTO meta (key, value) VALUES ('secret', 'abc');
  )");
}

TEST_F(SqliteOpen, ADatabaseOfTheFirstVersionIsBroughtUpToDateWithAllThatIsInIt) {
  write_first_version(file_);
  for (int round = 0; round < 2; ++round) {
    const auto store = store::open_sqlite_store(file_);
    EXPECT_EQ(store->schema_version(), static_cast<std::int64_t>(store::migrations().size()));
    EXPECT_EQ(store->secret(), "abc");
    EXPECT_EQ(store->find_request("r2"), 2);
    EXPECT_EQ(store->spec_json(1), R"({"name":"chess"})");
    EXPECT_EQ(store->last_event_id(), round == 0 ? 4 : 8);
    ASSERT_EQ(store->pending_actions().size(), 1U);
    const auto rows = store->list({});
    ASSERT_EQ(rows.size(), round == 0 ? 2U : 3U);
    const auto& old = rows[rows.size() - 2];
    EXPECT_EQ(old.state, round == 0 ? core::JobState::kRunning : core::JobState::kSucceeded);
    EXPECT_EQ(old.newest_attempt->queued_at, std::nullopt);
    EXPECT_EQ(old.newest_attempt->resumed_from_step, std::nullopt) << "0 said nothing of a program of one's own";
    EXPECT_EQ(old.sweep, "");
    EXPECT_EQ(store->count({}, "s3"), round == 0 ? 0 : 1);
    EXPECT_EQ(store->load(1)->state, core::JobState::kCancelled);
    if (round > 0) break;
    // Old jobs go on after the migration.
    const auto job = store->load(2);
    ASSERT_TRUE(job);
    EXPECT_EQ(job->state, core::JobState::kRunning);
    EXPECT_THAT(store->load_open(), testing::ElementsAre(*job));
    const core::Event end{at_ms(50), exited(1, 0, 0)};
    const store::Commit commit{end, store::shared(core::apply(*job, end)), "", ""};
    store->append({&commit, 1});
    Saga fresh(*store);
    auto element = submitted();
    element.sweep = {"s3", 0, 1};
    fresh.at(60).tell(element);
    fresh.tell(core::AttemptLaunched{1, "Slurm job 12", "", {}, true});
    store->complete_action(store->pending_actions().back().id);
    fresh.tell(core::NodeLost{1, "n1", core::Millis{3000}});
    store->complete_action(store->pending_actions().back().id);
    EXPECT_EQ(store->node_losses(at_ms(0), 10).size(), 1U);
  }
}

// Of a database whose outbox did not say yet whether an executor was asked.
TEST_F(SqliteOpen, AStartThatWasNotDoneMayHaveBeenAskedForBeforeTheMigration) {
  write_first_version(file_);
  {
    SQLite::Database database(file_.string(), SQLite::OPEN_READWRITE);
    store::migrate(database, std::span(store::migrations()).first(6));
    database.exec(R"(INSERT INTO actions (event_id, idx, job_id, kind, payload, done_at_ms) VALUES
      (3, 0, 2, 'start_attempt', '{"attempt":1,"not_before_ms":10}', NULL))");
  }
  const auto store = store::open_sqlite_store(file_);
  const auto actions = store->pending_actions();
  ASSERT_EQ(actions.size(), 2U) << "what was done is done";
  EXPECT_EQ(actions[0].action.index(), core::Action(core::StopAttempt{}).index());
  EXPECT_EQ(actions[0].state, store::ActionState::kPending);
  EXPECT_EQ(actions[1].action, core::Action(core::StartAttempt{1, at_ms(10)}));
  EXPECT_EQ(actions[1].state, store::ActionState::kLaunching);
}

// Of a database that told the Slurm job of an attempt by the attempt's name alone.
TEST_F(SqliteOpen, TheSlurmJobsOfOlderAttemptsAreReadOutOfTheirNames) {
  write_first_version(file_);
  {
    SQLite::Database database(file_.string(), SQLite::OPEN_READWRITE);
    store::migrate(database, std::span(store::migrations()).first(8));
    database.exec(R"(
      INSERT INTO jobs (id, request_id, spec_json, name, user, is_command, state, reason, version, last_checkpoint_step,
                        submitted_at_ms) VALUES
        (3, 'r3', '{}', 'a', 'ben', 1, 'queued', '', 2, 0, 50), (4, 'r4', '{}', 'b', 'ben', 1, 'queued', '', 2, 0, 50);
      INSERT INTO attempts (job_id, number, state, cause, reason, reason_started, resumed_from_step, handle,
                            queued_at_ms) VALUES
        (3, 1, 'queued', 'none', '', 'submitted', -1, 'Slurm job 1234', 60),
        (4, 1, 'queued', 'none', '', 'submitted', -1, 'Slurm job 1234_5', 60);
      INSERT INTO events (job_id, version, at_ms, type, attempt, payload, state_after, text) VALUES
        (3, 1, 50, 'job_submitted', 0, '{"v":1,"name":"a","user":"ben","is_command":true}', 'pending', ''),
        (3, 2, 60, 'attempt_launched', 1,
         '{"v":1,"attempt":1,"handle":"Slurm job 1234","node":"","pids":[],"queued":true}', 'queued', ''),
        (4, 1, 50, 'job_submitted', 0, '{"v":1,"name":"b","user":"ben","is_command":true}', 'pending', ''),
        (4, 2, 60, 'attempt_launched', 1,
         '{"v":1,"attempt":1,"handle":"Slurm job 1234_5","node":"","pids":[],"queued":true}', 'queued', '');
    )");
  }
  const auto store = store::open_sqlite_store(file_);
  const auto rows = store->list({});
  ASSERT_EQ(rows.size(), 4U);
  const std::optional<core::SchedulerJob> whole(core::SchedulerJob{1234, {}}), element(core::SchedulerJob{1234, 5});
  EXPECT_EQ(rows[0].newest_attempt->scheduler_job, element);
  EXPECT_EQ(rows[1].newest_attempt->scheduler_job, whole);
  EXPECT_EQ(rows[2].newest_attempt->scheduler_job, std::nullopt) << "it runs on the controller's machine";
  EXPECT_EQ(store->load(4)->attempts.at(0).scheduler_job, element);
  EXPECT_EQ(store->load(3)->attempts.at(0).scheduler_job, whole);
  EXPECT_EQ(store->load(2)->attempts.at(0).scheduler_job, std::nullopt);
}

TEST_F(SqliteOpen, EventsCanNeitherBeChangedNorDeleted) {
  fill(1);
  EXPECT_THROW(exec("UPDATE events SET text = 'other'"), SQLite::Exception);
  EXPECT_THROW(exec("DELETE FROM events WHERE id = 1"), SQLite::Exception);
  EXPECT_THROW(exec("INSERT OR REPLACE INTO events SELECT * FROM events; DELETE FROM events"), SQLite::Exception);
}

TEST_F(SqliteOpen, ADamagedEventIsNamedWhenItIsRead) {
  fill(1);
  exec("DROP TRIGGER events_are_never_changed; UPDATE events SET payload = '[1]' WHERE id = 2");
  const auto store = store::open_sqlite_store(file_);
  const auto error = error_of([&] { store->load(1); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), Kind::kCorrupt);
  EXPECT_THAT(error->what(), HasSubstr("attempt_launched"));
  EXPECT_THAT(error->what(), HasSubstr(file_.string()));
}

}  // namespace
}  // namespace test
