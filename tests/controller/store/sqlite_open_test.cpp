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
  EXPECT_EQ(store->schema_version(), static_cast<std::int64_t>(store::migrations().newest()));
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
  exec("PRAGMA user_version = 99; UPDATE meta SET value = '99' WHERE key = 'min_reader'");
  EXPECT_THAT(refused(Kind::kNewer), HasSubstr("schema version 99"));
}

TEST_F(SqliteOpen, ANewerSchemaThatSaysNothingOfItsReadersIsRefused) {
  fill(1);
  exec("PRAGMA user_version = 99; DELETE FROM meta WHERE key = 'min_reader'");
  EXPECT_THAT(refused(Kind::kNewer), HasSubstr("schema version 99"));
}

TEST_F(SqliteOpen, ASchemaFromBeforeTheFirstReleaseIsRefusedAndLeftAlone) {
  fill(1);
  exec("PRAGMA user_version = 12");
  EXPECT_THAT(refused(Kind::kOther), HasSubstr("schema version 12, of a muster before the first release"));
}

TEST_F(SqliteOpen, AnEmptyFileIsANewDatabase) {
  write_file(file_, "");
  EXPECT_EQ(store::open_sqlite_store(file_)->next_job_id(), 1);
}

TEST_F(SqliteOpen, AMigrationHappensWholeOrNotAtAll) {
  SQLite::Database database(file_.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  const std::string_view broken[] = {"CREATE TABLE one (a)", "CREATE TABLE two (a); INSERT INTO none VALUES (1)"};
  EXPECT_THROW(store::migrate(database, {7, broken}), SQLite::Exception);
  EXPECT_EQ(store::stored_version(database), 7);
  EXPECT_TRUE(database.tableExists("one"));
  EXPECT_FALSE(database.tableExists("two"));
  const std::string_view mended[] = {"never run again", "CREATE TABLE two (a)", "CREATE TABLE three (a)"};
  store::migrate(database, {7, mended});
  EXPECT_EQ(store::stored_version(database), 9);
  EXPECT_TRUE(database.tableExists("three"));
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
