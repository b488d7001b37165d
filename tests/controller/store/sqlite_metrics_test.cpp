// Goal: migrating a database from before named series keeps all its metrics.
// Method: stored/version5.sql is the dump of such a database. It holds a training, of which a rank was killed at step
// 9, and a command.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "controller/store/sqlite_file.h"
#include "controller/store/sqlite_store.h"
#include "tests/places.h"
#include "tests/temporary_folder.h"

namespace test {
namespace {

using testing::ElementsAre;

/// One row of the table of metrics in that version.
struct OldRow {
  core::JobId job;
  core::AttemptNumber attempt;
  core::Step step;
  double loss, tokens_per_s, learning_rate, grad_norm, step_ms;
  std::int64_t peak, bytes, at_ms;
  bool validated;
  double validation;
  std::uint32_t ranks;
};

std::vector<OldRow> old_rows(const std::filesystem::path& file) {
  SQLite::Database database(file.string(), SQLite::OPEN_READONLY);
  SQLite::Statement row(
      database,
      "SELECT job_id, attempt, step, max(CASE rank WHEN 0 THEN loss END), max(CASE rank WHEN 0 THEN "
      "tokens_per_s END), max(learning_rate), max(CASE rank WHEN 0 THEN grad_norm END), max(step_ms), "
      "max(memory_peak_bytes), sum(bytes_communicated), max(CASE rank WHEN 0 THEN at_ms END), "
      "max(has_validation), max(CASE rank WHEN 0 THEN validation_loss END), count(*) FROM metrics "
      "GROUP BY job_id, attempt, step ORDER BY job_id, attempt, step");
  std::vector<OldRow> rows;
  while (row.executeStep()) {
    rows.push_back({row.getColumn(0), row.getColumn(1), row.getColumn(2), row.getColumn(3), row.getColumn(4),
                    row.getColumn(5), row.getColumn(6), row.getColumn(7), row.getColumn(8), row.getColumn(9),
                    row.getColumn(10), row.getColumn(11).getInt() != 0, row.getColumn(12), row.getColumn(13)});
  }
  return rows;
}

TEST(SqliteMetrics, OfTheVersionBeforeNamedSeriesAreAllThere) {
  TemporaryFolder folder;
  const auto file = folder.path() / "muster.db";
  {
    std::ostringstream dump;
    dump << std::ifstream(::test::source_folder() + "/tests/controller/store/stored/version5.sql").rdbuf();
    SQLite::Database(file.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE).exec(dump.str());
  }
  const auto before = old_rows(file);
  ASSERT_EQ(before.size(), 25U) << "12 steps, and 12 of which one came twice";
  const auto store = store::open_sqlite_store(file);
  EXPECT_EQ(store->schema_version(), static_cast<std::int64_t>(store::migrations().size()));
  std::vector<store::StepRow> after;
  for (const core::JobId job : {1, 2, 3}) {
    const auto steps = store->metrics(job, 0, 0, 0, 100);
    after.insert(after.end(), steps.begin(), steps.end());
  }
  ASSERT_EQ(after.size(), before.size());
  for (std::size_t i = 0; i < before.size(); ++i) {
    const auto& [row, ranks, aged] = after[i];
    const auto& old = before[i];
    EXPECT_EQ(ranks, old.ranks);
    EXPECT_EQ(std::tuple(row.job, row.attempt, row.step), std::tuple(old.job, old.attempt, old.step));
    EXPECT_EQ(store::value_of(row, "loss"), old.loss);
    EXPECT_EQ(store::value_of(row, "tokens_per_s"), old.tokens_per_s);
    EXPECT_EQ(store::value_of(row, "learning_rate"), old.learning_rate);
    EXPECT_EQ(store::value_of(row, "grad_norm"), old.grad_norm);
    EXPECT_EQ(store::value_of(row, "validation/loss"), old.validated ? std::optional(old.validation) : std::nullopt);
    EXPECT_EQ(row.step_ms, old.step_ms);
    EXPECT_EQ(row.memory_peak_bytes, old.peak);
    EXPECT_EQ(row.bytes_communicated, old.bytes);
    EXPECT_EQ(row.at_ms, old.at_ms);
  }
  std::vector<std::string> names;
  const auto series = store->series(2);
  for (const auto& one : series) names.push_back(one.series.name);
  EXPECT_THAT(names, ElementsAre("loss", "tokens_per_s", "learning_rate", "grad_norm", "validation/loss"));
  EXPECT_EQ(series[0].series.unit, "nats");
  EXPECT_EQ(series[0].series.better, spec::Better::kLower);
  EXPECT_EQ(std::pair(series[4].attempt, series[4].step), std::pair(2U, core::Step{12}));
  EXPECT_EQ(series[4].value, before.back().validation);
  EXPECT_TRUE(store->series(3).empty()) << "a command that told of nothing";
  EXPECT_EQ(store->newest_metric(2)->step, 12);
}

TEST(SqliteMetrics, ARunThatWentThroughTheMigrationGoesOnWithItsSeries) {
  TemporaryFolder folder;
  const auto file = folder.path() / "muster.db";
  {
    std::ostringstream dump;
    dump << std::ifstream(::test::source_folder() + "/tests/controller/store/stored/version5.sql").rdbuf();
    SQLite::Database(file.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE).exec(dump.str());
  }
  for (const core::Step step : {13, 14}) {
    const auto store = store::open_sqlite_store(file);
    const store::MetricRow row{.job = 2, .attempt = 2, .step = step, .values = {{"loss", 1.5}, {"accuracy", 0.5}}};
    store->add_metrics({&row, 1});
    const auto series = store->series(2);
    ASSERT_EQ(series.size(), 6U);
    EXPECT_EQ(series[0].step, step);
    EXPECT_EQ(series[5].series.name, "accuracy");
    EXPECT_EQ(store->metrics(2, 0, 2, step - 1, 10)[0].row.values, row.values);
  }
}

}  // namespace
}  // namespace test
