// Goal: metrics age in two stages, and what is left says the same as before: curves keep every peak, counts stay right
// when rows are sent again, and whoever asks for rows is told what has aged out.
// Method: an injected clock; both kinds of stores; a second process that is killed while it lets rows age.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <iomanip>
#include <random>
#include <sstream>

#include "tests/controller/store/curves.h"
#include "tests/controller/store/kinds.h"
#include "tests/controller/store/random_rows.h"
#include "tests/controller/store/saga.h"

namespace test {
namespace {

using namespace std::chrono_literals;
using store::MetricRow;

constexpr store::MetricsKeep kKeep{24h, 30 * 24h};

template <typename Kind>
class Ageing : public testing::Test {
 protected:
  store::Store& store() { return kind_.get(); }
  void advance(core::Millis by) { kind_.now += by; }
  /// All that is due, at most 50 rows at once. Returns the number of transactions.
  int age() {
    int parts = 0;
    while (store().age_metrics(kKeep, 50)) ++parts;
    return parts;
  }
  void open_again() { kind_.open_again(); }

 private:
  Kind kind_;
};
TYPED_TEST_SUITE(Ageing, StoreKinds);

MetricRow told_loss(core::AttemptNumber attempt, core::Step step, double value, core::RankNumber rank = 0) {
  return {.job = 1, .attempt = attempt, .rank = rank, .step = step, .at_ms = 7, .values = {{"loss", value}}};
}

std::vector<MetricRow> losses(core::Step from, core::Step end) {
  std::vector<MetricRow> rows;
  for (auto step = from; step < end; ++step) {
    for (const core::RankNumber rank : {0U, 1U})
      rows.push_back(told_loss(1, step, static_cast<double>(step % 100), rank));
  }
  return rows;
}

void add_all(store::Store& store, const std::vector<MetricRow>& rows) {
  constexpr std::size_t kAtOnce = 200;
  for (std::size_t from = 0; from < rows.size(); from += kAtOnce) {
    store.add_metrics(std::span(rows).subspan(from, std::min(kAtOnce, rows.size() - from)));
  }
}

std::vector<core::Step> steps_of(store::Store& store) {
  std::vector<core::Step> steps;
  for (const auto& step : store.metrics(1, 0, 0, -1, 1'000'000)) steps.push_back(step.row.step);
  return steps;
}

/// Every step with all that is known of it, as text, since "not a number" is not equal to itself.
std::vector<std::string> rows_of(store::Store& store) {
  std::vector<std::string> rows;
  for (const auto& [row, ranks, aged] : store.metrics(1, 0, 0, -1, 1'000'000)) {
    std::ostringstream text;
    const auto add = [&](const auto& value) { value ? text << ' ' << *value : text << " -"; };
    text << std::setprecision(17) << row.attempt << '/' << row.step << ' ' << ranks << " at " << row.at_ms;
    add(row.step_ms);
    add(row.memory_bytes);
    add(row.memory_peak_bytes);
    add(row.bytes_communicated);
    for (const auto& [name, value] : row.values) text << ' ' << name << '=' << value;
    rows.push_back(text.str());
  }
  return rows;
}

TYPED_TEST(Ageing, NothingIsDueBeforeItsTime) {
  add_all(this->store(), losses(0, 300));
  this->advance(23h);
  EXPECT_EQ(this->age(), 0);
  this->advance(2h);
  EXPECT_GT(this->age(), 0);
  EXPECT_EQ(this->age(), 0) << "once";
}

TYPED_TEST(Ageing, WhenTheRowsOfRanksAreGonePeopleSeeWhatTheySawBefore) {
  auto& store = this->store();
  const store::DeclaredSeries sum{1, {.name = "loss", .over_ranks = spec::OverRanks::kSum}};
  store.add_metrics({}, {&sum, 1});
  add_all(store, losses(0, 300));
  const auto rows = rows_of(store);
  const auto curves = store.thinned({.job = 1});
  const auto series = store.series(1);
  this->advance(26h);
  this->age();
  this->open_again();
  auto& again = this->store();
  EXPECT_EQ(rows_of(again), rows);
  expect_equal(again.thinned({.job = 1}), curves);
  EXPECT_EQ(again.series(1)[0].value, series[0].value);
  EXPECT_EQ(again.newest_metric(1)->step, 299);
  EXPECT_EQ(store::value_of(*again.newest_metric(1), "loss"), 198) << "of both ranks, since no other is left";
  EXPECT_EQ(again.metrics(1, 0, 0, -1, 1)[0].aged_before, std::nullopt);
}

TYPED_TEST(Ageing, ARowThatIsSentAgainAfterwardsIsNotCountedTwice) {
  auto& store = this->store();
  add_all(store, losses(0, 300));
  const auto rows = rows_of(store);
  this->advance(26h);
  this->age();
  add_all(store, losses(0, 300));
  EXPECT_EQ(rows_of(store), rows);
  add_all(store, {told_loss(1, 299, 5, 2)});
  EXPECT_EQ(rows_of(store), rows) << "of another rank: nobody knows whether it came before";
  add_all(store, {told_loss(1, 300, 5), told_loss(2, 10, 6)});
  EXPECT_EQ(rows_of(store).size(), 302U) << "the attempt goes on, and so does the next one";
}

TYPED_TEST(Ageing, AStepOfWhichNobodyOrNotRankZeroHasToldIsTakenHoweverLate) {
  auto& store = this->store();
  add_all(store, {told_loss(1, 5, 1), told_loss(1, 6, 4, 1), told_loss(1, 9, 1)});
  this->advance(26h);
  this->age();
  add_all(store, {told_loss(1, 6, 2), told_loss(1, 7, 3)});
  add_all(store, {told_loss(1, 7, 5, 1), told_loss(1, 6, 8, 2)});
  EXPECT_THAT(steps_of(store), testing::ElementsAre(5, 6, 7, 9));
  EXPECT_EQ(store::value_of(store.metrics(1, 0, 1, 6, 1)[0].row, "loss"), 4) << "all rows of this step are there";
  EXPECT_EQ(store::value_of(store.metrics(1, 0, 1, 5, 1)[0].row, "loss"), 3) << "the mean of both";
  this->advance(26h);
  this->age();
  add_all(store, {told_loss(1, 6, 2), told_loss(1, 7, 3)});
  EXPECT_EQ(store::value_of(store.metrics(1, 0, 1, 5, 1)[0].row, "loss"), 3);
}

TYPED_TEST(Ageing, AfterWeeksBucketsAreLeftAndTheNewestSteps) {
  auto& store = this->store();
  auto rows = losses(0, 1000);
  rows[2 * 300].values[0].value = rows[2 * 300 + 1].values[0].value = 777;
  rows[2 * 400].values[0].value = rows[2 * 400 + 1].values[0].value = -5;
  add_all(store, rows);
  this->advance(31 * 24h);
  EXPECT_GT(this->age(), 0);
  this->open_again();
  auto& again = this->store();
  const auto left = again.metrics(1, 0, 0, -1, 1'000'000);
  ASSERT_FALSE(left.empty());
  const auto from = left[0].row.step;
  EXPECT_EQ(from % 32, 0);
  EXPECT_GT(from, 800);
  EXPECT_LE(from, 1000 - 128);
  EXPECT_EQ(left[0].aged_before, from);
  EXPECT_EQ(left[1].aged_before, std::nullopt) << "told once an attempt";
  EXPECT_EQ(again.metrics(1, 0, 1, from, 1)[0].aged_before, std::nullopt) << "whoever has been there knows";
  const auto curves = again.thinned({.job = 1, .points = 50'000});
  EXPECT_EQ(curves.bucket_steps, 32);
  ASSERT_EQ(curves.attempts.size(), 1U);
  EXPECT_EQ(std::tuple(curves.attempts[0].first, curves.attempts[0].last, curves.attempts[0].rows_from),
            std::tuple(0, 999, from));
  const auto value_at = [&](core::Step step) {
    const auto& points = curve(curves, "loss").points;
    const auto found = std::ranges::find(points, step, [](const auto& point) { return point.spot.step; });
    return found == points.end() ? std::nan("") : found->spot.value;
  };
  EXPECT_EQ(value_at(300), 777) << "the highest";
  EXPECT_EQ(value_at(400), -5) << "the lowest";
  EXPECT_EQ(value_at(31), 31) << "the last";
  EXPECT_TRUE(std::isnan(value_at(310)));
  EXPECT_EQ(value_at(from + 7), (from + 7) % 100) << "the newest steps are all there";
  EXPECT_EQ(curve(curves, "loss").values, 1000);
}

/// A job of one rank whose first attempt has ended.
void end_first_attempt(Saga& saga) {
  saga.tell(submitted(1));
  saga.run(1);
  saga.tell(exited(1, 0, 0));
}

// A sweep may have thousands of such short jobs: their steps fill no bucket.
TYPED_TEST(Ageing, OfAnAttemptThatIsOverBucketsAreLeftAloneHoweverShortItWas) {
  for (const core::Step count : {1, 10, 32, 150}) {
    SCOPED_TRACE(count);
    TypeParam kind;
    Saga saga(kind.get());
    end_first_attempt(saga);
    auto rows = losses(0, count);
    rows[0].values[0].value = rows[1].values[0].value = 777;
    add_all(kind.get(), rows);
    const auto before = kind.get().thinned({.job = 1, .points = 50'000});
    kind.now += 31 * 24h;
    while (kind.get().age_metrics(kKeep, 50)) continue;
    kind.open_again();
    auto& store = kind.get();
    EXPECT_THAT(steps_of(store), testing::IsEmpty());
    const auto after = store.thinned({.job = 1, .points = 50'000});
    EXPECT_EQ(curve(after, "loss").values, count);
    EXPECT_EQ(curve(after, "loss").points.front().spot.value, 777) << "the highest";
    EXPECT_EQ(curve(after, "loss").points.back().spot.step, curve(before, "loss").points.back().spot.step);
    ASSERT_EQ(after.attempts.size(), 1U);
    EXPECT_EQ(after.attempts[0].last, count - 1);
    ASSERT_TRUE(store.newest_metric(1));
    EXPECT_EQ(store.newest_metric(1)->step, count - 1);
    EXPECT_EQ(store::value_of(*store.newest_metric(1), "loss"), count == 1 ? 777 : (count - 1) % 100);
    EXPECT_EQ(store.series(1)[0].value, count == 1 ? 777 : (count - 1) % 100);
  }
}

TYPED_TEST(Ageing, AnAttemptThatIsSilentForWeeksKeepsItsNewestStepsUntilItIsOver) {
  auto& store = this->store();
  Saga saga(store);
  saga.tell(submitted(1));
  saga.run(1);
  add_all(store, losses(0, 300));
  const auto of = curve(store.thinned({.job = 1, .points = 50'000}), "loss").values;
  for (int month = 0; month < 3; ++month) {
    this->advance(31 * 24h);
    this->age();
    EXPECT_EQ(steps_of(store).size(), 300U - 160U) << month;
    EXPECT_EQ(this->age(), 0);
  }
  add_all(store, losses(300, 310));
  EXPECT_EQ(steps_of(store).back(), 309) << "it goes on";
  saga.tell(exited(1, 0, 0));
  this->advance(31 * 24h);
  this->age();
  EXPECT_THAT(steps_of(store), testing::IsEmpty());
  EXPECT_EQ(curve(store.thinned({.job = 1, .points = 50'000}), "loss").values, of + 10);
}

TYPED_TEST(Ageing, WhatComesTooLateIsCounted) {
  auto& store = this->store();
  Saga saga(store);
  end_first_attempt(saga);
  add_all(store, losses(0, 10));
  EXPECT_EQ(store.metrics_left_out(1), 0);
  this->advance(26h);
  this->age();
  add_all(store, {told_loss(1, 3, 5, 2), told_loss(1, 4, 5, 2)});
  EXPECT_EQ(store.metrics_left_out(1), 2);
  this->advance(31 * 24h);
  this->age();
  add_all(store, {told_loss(1, 20, 5)});
  this->open_again();
  auto& again = this->store();
  EXPECT_EQ(again.metrics_left_out(1), 3) << "its bucket is written for ever";
  EXPECT_EQ(curve(again.thinned({.job = 1}), "loss").values, 10);
  EXPECT_EQ(again.metrics_left_out(2), 0);
  add_all(again, {told_loss(1, 40, 5)});
  EXPECT_EQ(curve(again.thinned({.job = 1}), "loss").values, 11) << "a step of which nobody has told";
  EXPECT_EQ(again.newest_metric(1)->step, 40);
}

TYPED_TEST(Ageing, AZoomIntoOldStepsShowsWholeBuckets) {
  auto& store = this->store();
  add_all(store, losses(0, 1000));
  this->advance(31 * 24h);
  this->age();
  const auto zoomed = store.thinned({.job = 1, .from = 70, .to = 75});
  EXPECT_EQ(text_of(zoomed.series[0]), "1/64=64 1/95=95");
  EXPECT_EQ(zoomed.bucket_steps, 32);
  EXPECT_TRUE(store.thinned({.job = 1, .after_attempt = 1, .after_step = 999}).series.empty());
}

TYPED_TEST(Ageing, ARunThatGoesOnForWeeksLosesWhatIsOldAlone) {
  for (core::Step day = 0; day < 40; ++day) {
    add_all(this->store(), losses(day * 100, day * 100 + 100));
    this->advance(24h);
    this->age();
    if (day == 20) this->open_again();
  }
  const auto steps = steps_of(this->store());
  EXPECT_NEAR(static_cast<double>(steps.front()), 900, 132) << "the steps of the first nine or ten days are gone";
  EXPECT_EQ(steps.back(), 3999);
  EXPECT_EQ(static_cast<core::Step>(steps.size()), 4000 - steps.front());
  EXPECT_EQ(curve(this->store().thinned({.job = 1}), "loss").values, 4000);
}

TYPED_TEST(Ageing, RanksWithWrongClocksAgeAsTheOthers) {
  auto& store = this->store();
  auto rows = losses(0, 300);
  for (auto& row : rows) row.at_ms = row.step % 2 == 0 ? 0 : 4'000'000'000'000;
  add_all(store, rows);
  this->age();
  EXPECT_EQ(steps_of(store).size(), 300U);
  this->advance(31 * 24h);
  this->age();
  EXPECT_LT(steps_of(store).size(), 200U);
}

TYPED_TEST(Ageing, ASeriesKeepsItsNewestValueHoweverOldItIs) {
  auto& store = this->store();
  auto rows = losses(0, 1000);
  rows[2 * 100].values.push_back({"validation/loss", 0.25});
  add_all(store, rows);
  this->advance(31 * 24h);
  this->age();
  this->open_again();
  const auto series = this->store().series(1);
  ASSERT_EQ(series.size(), 2U);
  EXPECT_EQ(series[1].step, 100);
  EXPECT_EQ(series[1].value, 0.25);
}

TYPED_TEST(Ageing, ASeriesThatIsDeclaredAnewKeepsItsOldBuckets) {
  auto& store = this->store();
  add_all(store, losses(0, 1000));
  this->advance(31 * 24h);
  this->age();
  const store::DeclaredSeries sum{1, {.name = "loss", .over_ranks = spec::OverRanks::kSum}};
  store.add_metrics({}, {&sum, 1});
  add_all(store, losses(1000, 1400));
  const auto curves = store.thinned({.job = 1, .points = 50'000});
  EXPECT_EQ(curve(curves, "loss").values, 1400);
  EXPECT_EQ(curve(curves, "loss").points.back().spot.value, 198);
}

TYPED_TEST(Ageing, ARemovedJobLeavesNothingThatAges) {
  auto& store = this->store();
  add_all(store, losses(0, 300));
  while (store.remove_metrics(1, 100) == 100) continue;
  this->advance(31 * 24h);
  EXPECT_EQ(this->age(), 0);
}

// The model puts the ranks together when it is asked. Ranks are late, rows come twice or never, attempts repeat steps.
TEST(SqliteAgeing, IsThatOfTheModelWhateverComesInWhichOrder) {
  for (const unsigned seed : {11U, 12U}) {
    Memory memory;
    Sqlite sqlite;
    std::mt19937 random(seed);
    const auto rows = random_rows(seed);
    memory.get().add_metrics({}, kDeclared);
    sqlite.get().add_metrics({}, kDeclared);
    for (std::size_t from = 0; from < rows.size(); from += 50) {
      const auto piece = std::span(rows).subspan(from, std::min<std::size_t>(50, rows.size() - from));
      memory.get().add_metrics(piece, {});
      sqlite.get().add_metrics(piece, {});
      memory.now += random() % 2 == 0 ? core::Millis(0) : core::Millis(12h);
      sqlite.now = memory.now;
      if (random() % 40 == 0) sqlite.open_again();
      if (random() % 10 != 0) continue;
      while (memory.get().age_metrics(kKeep, 50)) continue;
      while (sqlite.get().age_metrics(kKeep, 50)) continue;
    }
    const auto expected = rows_of(memory.get()), found = rows_of(sqlite.get());
    ASSERT_EQ(expected.size(), found.size());
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_EQ(expected[i], found[i]);
    ASSERT_TRUE(sqlite.get().metrics(1, 0, 0, -1, 1)[0].aged_before) << "nothing has aged out";
    for (const auto& request : requests()) expect_equal(memory.get().thinned(request), sqlite.get().thinned(request));
  }
}

TEST(SqliteAgeing, TheRoomOfOldRowsIsUsedAgainOrGivenBack) {
  Sqlite sqlite;
  const auto file = sqlite.folder.path() / "metrics.db";
  const auto pages = [&](const char* what) {
    SQLite::Database database(file.string(), SQLite::OPEN_READONLY);
    return database.execAndGet(what).getInt64();
  };
  add_all(sqlite.get(), losses(0, 60'000));
  const auto full = pages("PRAGMA page_count");
  sqlite.now += 31 * 24h;
  while (sqlite.get().age_metrics(kKeep, 5000)) continue;
  const auto left = pages("PRAGMA page_count");
  EXPECT_LT(left, full / 2);
  EXPECT_LE(pages("PRAGMA freelist_count"), std::max<std::int64_t>(1024, left / 4));
}

TEST(SqliteAgeing, ARowThatIsLeftOutIsToldOnceAnAttempt) {
  const TemporaryFolder folder;
  core::Time now = kFirstHour;
  std::vector<std::string> told;
  const auto store = store::open_sqlite_store(
      folder.path() / "muster.db", {.now = [&] { return now; }, .tell = [&](auto text) { told.push_back(text); }});
  add_all(*store, losses(0, 10));
  now += 26h;
  while (store->age_metrics(kKeep, 50)) continue;
  add_all(*store, losses(0, 10));
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told[0], testing::HasSubstr("job 1, attempt 1, rank 0, step 0"));
}

/// Adds the rows of a day, lets older ones age in small parts, and so on, for ever.
[[noreturn]] void work_for_ever(const std::filesystem::path& file, core::Step from) {
  for (core::Step day = from;; ++day) {
    // Each round opens the files again, so a kill may fall there too.
    const auto now = kFirstHour + std::chrono::hours(24 * day);
    const auto store = store::open_sqlite_store(file, {.now = [=] { return now; }});
    add_all(*store, losses(day * 100, day * 100 + 100));
    while (store->age_metrics({24h, 48h}, 30)) continue;
  }
}

TEST(SqliteAgeing, AKillAnywhereLosesAndDoublesNothing) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "muster.db";
  {
    // Metrics of a job that muster.db does not know would be removed after a kill.
    const auto store = store::open_sqlite_store(file);
    Saga saga(*store, "r");
    saga.tell(submitted());
    saga.run(1);
  }
  std::mt19937 random(3);
  core::Step done = 0;
  // At least twenty kills, and as many more as it takes to come to the sixth day.
  for (int round = 0; round < 20 || done < 6; ++round) {
    ASSERT_LT(round, 1000) << "the children are killed before they write anything";
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) work_for_ever(file, done);
    usleep(static_cast<useconds_t>(5'000 + random() % 60'000));  // the kill must fall at a random moment
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const auto store = store::open_sqlite_store(file);
    const auto curves = store->thinned({.job = 1, .points = 100'000});
    if (curves.series.empty()) continue;
    const auto last = curves.attempts[0].last;
    EXPECT_EQ(curves.series[0].values, last + 1) << "a step is there twice, or is lost";
    for (const auto& step : store->metrics(1, 0, 0, -1, 1'000'000)) {
      EXPECT_TRUE(step.ranks == 2 || step.row.step / 100 == last / 100) << step.row.step;
    }
    // The rows of the last day may be there in part. They are sent again, as ranks do.
    done = last / 100;
  }
}

}  // namespace
}  // namespace test
