// Goal: a backup holds one moment of a store that goes on, and a restore is whole or repeated, whatever stops it.
// Method: real databases; damage, crashes between two lines (their traces are made by hand), and newer schemas.
#include "controller/store/sqlite_backup.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "controller/store/sqlite_store.h"
#include "tests/controller/store/error_of.h"
#include "tests/controller/store/saga.h"
#include "tests/temporary_folder.h"

namespace test {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using Kind = store::Error::Kind;

class Backup : public testing::Test {
 protected:
  Backup() { fs::create_directory(data_); }

  void add_job(store::Store& store) {
    Saga saga(store, "request-" + std::to_string(store.next_job_id()));
    saga.tell(submitted());
    saga.run(1);
    const store::MetricRow row{.job = saga.job().id, .attempt = 1, .rank = 0, .step = 1, .values = {{"loss", 2.5}}};
    store.add_metrics({&row, 1});
  }
  std::vector<std::string> restored(const fs::path& from) {
    std::vector<std::string> told;
    store::restore_backup(from, jobs_, [&](const std::string& text) { told.push_back(text); });
    return told;
  }
  std::int64_t jobs_in(const fs::path& folder) {
    return store::open_sqlite_store(folder / "muster.db")->count(std::span<const core::JobState>());
  }
  /// Files whose name has these words.
  std::vector<std::string> files_with(const std::string& words) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(data_)) {
      if (entry.path().filename().string().find(words) != std::string::npos) names.push_back(entry.path().filename());
    }
    std::ranges::sort(names);
    return names;
  }

  TemporaryFolder folder_;
  const fs::path data_ = folder_.path() / "data", jobs_ = data_ / "muster.db", file_ = folder_.path() / "backup.db";
};

TEST_F(Backup, HoldsOneMomentOfAStoreThatGoesOn) {
  const auto store = store::open_sqlite_store(jobs_);
  add_job(*store);
  const auto facts = store::write_backup(jobs_, file_, R"({"token":"t"})", false);
  EXPECT_EQ(facts.jobs, 1);
  EXPECT_EQ(facts.open_jobs, 1);
  EXPECT_EQ(facts.secret, store->secret());
  EXPECT_EQ(facts.note, R"({"token":"t"})");
  EXPECT_EQ(facts.metrics_bytes, 0U);
  add_job(*store);
  EXPECT_EQ(store::read_backup(file_).jobs, 1);
  EXPECT_EQ(store->count(std::span<const core::JobState>()), 2) << "the store goes on";
  struct stat status {};
  ASSERT_EQ(::stat(file_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U) << "it holds the token";
  EXPECT_FALSE(fs::exists(file_.string() + ".part"));
  EXPECT_FALSE(fs::exists(store::metrics_of_backup(file_)));
}

TEST_F(Backup, ComesBackInAnEmptyFolderWithOrWithoutItsMetrics) {
  {
    const auto store = store::open_sqlite_store(jobs_);
    add_job(*store);
    store::write_backup(jobs_, file_, "{}", true);
  }
  EXPECT_GT(store::read_backup(file_).metrics_bytes, 0U);
  const auto other = folder_.path() / "other";
  fs::create_directory(other);
  store::restore_backup(file_, other / "muster.db", [](const auto& text) { ADD_FAILURE() << text; });
  {
    const auto store = store::open_sqlite_store(other / "muster.db");
    EXPECT_EQ(store->metrics(1, 0, 0, 0, 10).size(), 1U);
    EXPECT_EQ(store->count(std::span<const core::JobState>()), 1);
  }
  SQLite::Database made((other / "muster.db").string());
  EXPECT_EQ(made.execAndGet("SELECT count(*) FROM meta WHERE key = 'backup'").getInt(), 0)
      << "the token is not left there";
  fs::remove(store::metrics_of_backup(file_));
  const auto third = folder_.path() / "third";
  fs::create_directory(third);
  store::restore_backup(file_, third / "muster.db", [](const auto& text) { ADD_FAILURE() << text; });
  EXPECT_EQ(jobs_in(third), 1);
}

TEST_F(Backup, KeepsWhatWasThereAndItsMetrics) {
  {
    const auto store = store::open_sqlite_store(jobs_);
    add_job(*store);
    store::write_backup(jobs_, file_, "{}", false);
    add_job(*store);
  }
  EXPECT_THAT(restored(file_),
              ElementsAre(AllOf(HasSubstr(jobs_.string() + " was there before"), HasSubstr("muster.db.replaced-"))));
  const auto store = store::open_sqlite_store(jobs_);
  EXPECT_EQ(store->count(std::span<const core::JobState>()), 1);
  EXPECT_EQ(store->metrics(1, 0, 0, 0, 10).size(), 1U) << "the folder's metrics are of the same store";
  EXPECT_TRUE(store->metrics(2, 0, 0, 0, 10).empty()) << "job 2 is not known any more";
  const auto kept = files_with("replaced-");
  ASSERT_EQ(kept.size(), 1U);
  SQLite::Database before((data_ / kept.front()).string());
  EXPECT_EQ(before.execAndGet("SELECT count(*) FROM jobs").getInt(), 2);
}

TEST_F(Backup, TakesThePlaceOfADamagedStoreAndOfMetricsOfAnotherOne) {
  {
    const auto store = store::open_sqlite_store(jobs_);
    add_job(*store);
    store::write_backup(jobs_, file_, "{}", false);
  }
  std::ofstream(jobs_, std::ios::binary) << "no database";
  fs::remove(data_ / "metrics.db");
  TemporaryFolder stranger;
  { add_job(*store::open_sqlite_store(stranger.path() / "muster.db")); }
  fs::copy(stranger.path() / "metrics.db", data_ / "metrics.db");
  EXPECT_EQ(restored(file_).size(), 2U) << "both were moved away";
  EXPECT_EQ(jobs_in(data_), 1);
}

TEST_F(Backup, IsRefusedBesideAMusterdThatRuns) {
  const auto store = store::open_sqlite_store(jobs_);
  add_job(*store);
  store::write_backup(jobs_, file_, "{}", false);
  const auto error = error_of([&] { restored(file_); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), Kind::kInUse);
  EXPECT_TRUE(files_with("replaced-").empty());
}

TEST_F(Backup, ThatIsDamagedOrNoneOrNewerChangesNothing) {
  {
    const auto store = store::open_sqlite_store(jobs_);
    for (int i = 0; i < 30; ++i) add_job(*store);
    store::write_backup(jobs_, file_, "{}", false);
  }
  const auto none = error_of([&] { restored(folder_.path() / "none.db"); });
  ASSERT_TRUE(none);
  EXPECT_THAT(none->what(), HasSubstr("none.db: there is no such backup"));

  const auto newer = folder_.path() / "newer.db";
  fs::copy(file_, newer);
  SQLite::Database(newer.string(), SQLite::OPEN_READWRITE)
      .exec("PRAGMA user_version = 99; UPDATE meta SET value = '99' WHERE key = 'min_reader'");
  const auto refused = error_of([&] { restored(newer); });
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->kind(), Kind::kNewer);

  const auto damaged = folder_.path() / "damaged.db";
  fs::copy(file_, damaged);
  {
    std::fstream out(damaged, std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(static_cast<std::streamoff>(fs::file_size(damaged) / 2));
    out << std::string(8192, 'x');
  }
  const auto wrong = error_of([&] { restored(damaged); });
  ASSERT_TRUE(wrong);
  EXPECT_EQ(wrong->kind(), Kind::kCorrupt) << wrong->what();
  EXPECT_TRUE(files_with("replaced-").empty());
  EXPECT_EQ(jobs_in(data_), 30);
}

TEST_F(Backup, IsNotWrittenOverAFileThatIsThere) {
  { add_job(*store::open_sqlite_store(jobs_)); }
  std::ofstream(file_) << "mine";
  const auto error = error_of([&] { store::write_backup(jobs_, file_, "{}", true); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr("is there already: name another file"));
  EXPECT_EQ(read_file(file_), "mine");
  EXPECT_FALSE(fs::exists(store::metrics_of_backup(file_)));
  const auto missing =
      error_of([&] { store::write_backup(folder_.path() / "no" / "muster.db", folder_.path() / "b", "", false); });
  ASSERT_TRUE(missing);
  EXPECT_THAT(missing->what(), HasSubstr("there is no such file; name musterd's data folder with --data-folder"));
  EXPECT_FALSE(fs::exists(folder_.path() / "b"));
}

// A crash between the first rename and the last: no store is there, and an empty one must not begin.
TEST_F(Backup, ARestoreThatWasCutShortLetsNoMusterdStartAndIsRepeated) {
  {
    const auto store = store::open_sqlite_store(jobs_);
    add_job(*store);
    store::write_backup(jobs_, file_, "{}", false);
  }
  std::ofstream(jobs_.string() + ".restoring") << file_.string() << "\n";
  fs::rename(jobs_, jobs_.string() + ".replaced-20261130T120000Z");
  const auto error = error_of([&] { store::open_sqlite_store(jobs_); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(),
              HasSubstr("was begun and not finished: run it again, muster admin restore " + file_.string()));
  EXPECT_FALSE(fs::exists(jobs_)) << "no empty store took the place";
  restored(file_);
  EXPECT_EQ(jobs_in(data_), 1);
  EXPECT_TRUE(files_with("restoring").empty());
  EXPECT_TRUE(files_with(".new").empty());
}

// [Note: schemas of neighbouring versions]

class NextSchema : public Backup {
 protected:
  NextSchema() { add_job(*store::open_sqlite_store(jobs_)); }

  static constexpr std::string_view kNext =
      "ALTER TABLE jobs ADD COLUMN colour TEXT; CREATE TABLE colours (name TEXT PRIMARY KEY) STRICT;";
  /// Does what the next version does to the database at its start.
  void upgrade(std::string_view sql, std::vector<std::string>& told) {
    auto next = store::migrations();
    std::vector<std::string_view> all(next.sql.begin(), next.sql.end());
    all.push_back(sql);
    next.sql = all;
    store::Database database(jobs_);
    database.check(next);
    database.begin(false);
    store::migrate_beside_copy(database, next, [&](const std::string& text) { told.push_back(text); });
    database.open_readers(0);
  }
};

TEST_F(NextSchema, IsWorkedWithByTheVersionBeforeAndGoesOnAfterwards) {
  std::vector<std::string> told;
  upgrade(kNext, told);
  const auto now = std::to_string(store::migrations().newest()),
             next = std::to_string(store::migrations().newest() + 1);
  EXPECT_THAT(told, ElementsAre(AllOf(HasSubstr("had schema version " + now + " and gets version " + next),
                                      HasSubstr(jobs_.string() + ".schema-" + now))));
  EXPECT_EQ(store::read_backup(jobs_.string() + ".schema-" + now).jobs, 1) << "the copy from before";

  std::vector<std::string> said;
  {
    const auto rolled_back = store::open_sqlite_store(jobs_, {.tell = [&](const auto& text) { said.push_back(text); }});
    EXPECT_EQ(std::to_string(rolled_back->schema_version()), next);
    add_job(*rolled_back);
    EXPECT_EQ(rolled_back->count(std::span<const core::JobState>()), 2);
  }
  EXPECT_THAT(said, ElementsAre(HasSubstr("has schema version " + next + ", of a newer muster")));
  upgrade(kNext, told);
  EXPECT_EQ(told.size(), 1U) << "nothing to migrate";
  SQLite::Database database(jobs_.string());
  EXPECT_EQ(database.execAndGet("SELECT count(*) FROM jobs WHERE colour IS NULL").getInt(), 2);
}

TEST_F(NextSchema, ThatTheVersionBeforeCannotReadIsRefusedWithTheCopysName) {
  std::vector<std::string> told;
  const auto next = std::to_string(store::migrations().newest() + 1);
  upgrade(std::string(kNext) + "UPDATE meta SET value = '" + next + "' WHERE key = 'min_reader'", told);
  const auto error = error_of([&] { store::open_sqlite_store(jobs_); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), Kind::kNewer);
  EXPECT_THAT(error->what(), HasSubstr("muster.db.schema-N"));
}

TEST_F(NextSchema, IsNotBegunWithoutACopy) {
  const auto now = std::to_string(store::migrations().newest());
  fs::create_directories(jobs_.string() + ".schema-" + now + ".part/x");  // where the copy is to be made
  std::vector<std::string> told;
  EXPECT_TRUE(error_of([&] { upgrade(kNext, told); }));
  EXPECT_EQ(std::to_string(store::open_sqlite_store(jobs_)->schema_version()), now);
}

}  // namespace
}  // namespace test
