// Goal: muster.db and metrics.db are right together, wherever each of them comes from: a restore of one of the two,
// another store, a disk that has lost or damaged one.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "controller/store/sqlite_steps.h"
#include "controller/store/sqlite_store.h"
#include "tests/controller/store/error_of.h"
#include "tests/controller/store/saga.h"
#include "tests/temporary_folder.h"

namespace test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Kind = store::Error::Kind;

class Pair : public testing::Test {
 protected:
  TemporaryFolder folder_;
  const fs::path jobs_ = folder_.path() / "muster.db", metrics_ = folder_.path() / "metrics.db";
  std::vector<std::string> told_;

  std::unique_ptr<store::Store> open() {
    return store::open_sqlite_store(jobs_, {.tell = [this](const auto& text) { told_.push_back(text); }});
  }
  /// Opens the store, adds a job with `attempts` attempts that each told ten steps, and closes it.
  void add_job(core::AttemptNumber attempts = 1) {
    const auto store = open();
    Saga saga(*store, "request-" + std::to_string(store->next_job_id()));
    saga.tell(submitted());
    for (core::AttemptNumber number = 1; number <= attempts; ++number) {
      if (number > 1) saga.at(1000 * number);
      saga.run(number);
      if (number < attempts) saga.tell(core::NodeLost{number, "node1", core::Millis{3000}});
      std::vector<store::MetricRow> rows;
      for (core::Step step = 1; step <= 10; ++step) {
        rows.push_back(
            {.job = saga.job().id, .attempt = number, .step = step, .values = {{"loss", 10.0 * number + step}}});
      }
      store->add_metrics(rows);
    }
  }
  /// Copies both databases, which are closed, to files that end with `suffix`.
  void back_up(const std::string& suffix) const {
    for (const auto& file : {jobs_, metrics_}) fs::copy_file(file, file.string() + suffix);
  }
  static void restore(const fs::path& file, const std::string& suffix) {
    fs::copy_file(file.string() + suffix, file, fs::copy_options::overwrite_existing);
  }
};

TEST_F(Pair, MetricsOfAnotherStoreAreRefusedAndLeftAlone) {
  add_job();
  const TemporaryFolder other;
  store::open_sqlite_store(other.path() / "muster.db").reset();
  fs::copy_file(other.path() / "muster.db", jobs_, fs::copy_options::overwrite_existing);
  const auto error = error_of([&] { open(); });
  ASSERT_TRUE(error);
  EXPECT_THAT(error->what(), HasSubstr(metrics_.string() + " does not belong to " + jobs_.string()));
  EXPECT_THAT(error->what(), HasSubstr("move " + metrics_.string() + " away"));
  fs::remove(metrics_);
  EXPECT_NE(open(), nullptr);
}

TEST_F(Pair, ALostFileOfMetricsIsToldAndTheJobsGoOn) {
  add_job();
  fs::remove(metrics_);
  const auto store = open();
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_THAT(told_[0], HasSubstr(metrics_.string() + " was not there"));
  EXPECT_TRUE(store->metrics(1, 0, 0, 0, 10).empty());
  const store::MetricRow row{.job = 1, .attempt = 1, .step = 11};
  store->add_metrics({&row, 1});
  EXPECT_EQ(store->metrics(1, 0, 0, 0, 10).size(), 1U);
}

TEST_F(Pair, MetricsOfJobsThatARestoreHasForgottenAreRemoved) {
  add_job();
  back_up(".before");
  add_job();
  restore(jobs_, ".before");
  fs::remove(jobs_.string() + ".clean");
  add_job();
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_THAT(told_[0], HasSubstr("metrics of 1 jobs that " + jobs_.string() + " does not know"));
  const auto store = open();
  EXPECT_EQ(store->metrics(1, 0, 0, 0, 100).size(), 10U);
  const auto steps = store->metrics(2, 0, 0, 0, 100);
  ASSERT_EQ(steps.size(), 10U) << "of the new job with this number";
  EXPECT_EQ(steps[0].row.at_ms, 0);
}

TEST_F(Pair, MetricsOfAttemptsThatARestoreHasForgottenAreRemoved) {
  add_job();
  back_up(".before");
  fs::remove(jobs_);
  fs::remove(metrics_);
  add_job(3);
  // Both pairs have one job; the second knows two more attempts of it. The names of the pairs are made equal.
  std::string name;
  {
    SQLite::Database newer(metrics_.string(), SQLite::OPEN_READONLY);
    name = newer.execAndGet("SELECT value FROM meta WHERE key = 'pair'").getString();
  }
  restore(jobs_, ".before");
  SQLite::Database(jobs_.string(), SQLite::OPEN_READWRITE)
      .exec("UPDATE meta SET value = '" + name + "' WHERE key = 'pair'");
  const auto store = open();
  ASSERT_EQ(told_.size(), 1U) << testing::PrintToString(told_);
  const auto steps = store->metrics(1, 0, 0, 0, 100);
  ASSERT_EQ(steps.size(), 10U);
  EXPECT_EQ(steps.back().row.attempt, 1U);
  const auto series = store->series(1);
  ASSERT_EQ(series.size(), 1U);
  EXPECT_EQ(std::tuple(series[0].attempt, series[0].step, series[0].value), std::tuple(1U, 10, 20.0));
  EXPECT_EQ(store->newest_metric(1)->step, 10);
}

TEST_F(Pair, AnOlderFileOfMetricsIsTaken) {
  add_job();
  back_up(".before");
  add_job();
  restore(metrics_, ".before");
  const auto store = open();
  EXPECT_EQ(store->metrics(1, 0, 0, 0, 100).size(), 10U);
  EXPECT_TRUE(store->metrics(2, 0, 0, 0, 100).empty());
  EXPECT_TRUE(told_.empty());
  const store::MetricRow row{.job = 2, .attempt = 1, .step = 11};
  store->add_metrics({&row, 1});
  EXPECT_EQ(store->metrics(2, 0, 0, 0, 100).size(), 1U);
}

TEST_F(Pair, DamagedMetricsAreRefusedByTheirNameAndNeitherFileIsChanged) {
  add_job();
  std::string garbage(5000, 'g');
  write_file(metrics_, garbage);
  const auto before = read_file(jobs_);
  const auto error = error_of([&] { open(); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->kind(), Kind::kCorrupt);
  EXPECT_THAT(error->what(), HasSubstr(metrics_.string() + " is damaged"));
  EXPECT_TRUE(read_file(jobs_) == before);
  EXPECT_EQ(read_file(metrics_), garbage);
}

TEST(StepTotals, ValuesAreReadAsTheyWereWritten) {
  std::map<std::int64_t, store::RankValues> values;
  values[1].add(0, 2.5);
  values[2].add(3, std::nan(""));
  for (core::RankNumber rank = 0; rank < 5000; ++rank) values[300].add(rank, rank * 0.1);
  values[301].add(1, -1);
  values[301].add(2, -2);
  const auto bytes = store::encode_values(values);
  const auto read = store::decode_values(bytes);
  ASSERT_EQ(read.size(), values.size());
  for (const std::int64_t series : {1, 300, 301}) EXPECT_EQ(read.at(series), values.at(series)) << series;
  EXPECT_TRUE(std::isnan(read.at(2).sum));
  EXPECT_EQ(read.at(2).count, 1U);
  EXPECT_EQ(store::encode_values({{7, values[1]}}).size(), 10U);
  for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
    if (const auto error = error_of([&] { store::decode_values(std::string_view(bytes).substr(0, cut)); })) {
      EXPECT_EQ(error->kind(), Kind::kCorrupt);
    }
  }
}

}  // namespace
}  // namespace test
