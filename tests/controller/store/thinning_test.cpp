// Goal: a curve in few points hides no peak, no valley and no gap, whether it is read from rows or from buckets.
// Method: runs with several attempts and ranks, read thinned from each kind of store and compared with all their rows.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tests/controller/store/curves.h"
#include "tests/controller/store/kinds.h"
#include "tests/controller/store/random_rows.h"

namespace test {
namespace {

using store::MetricRow;
using store::ThinRequest;
using testing::ElementsAre;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <typename Kind>
class ThinnedMetrics : public testing::Test {
 protected:
  store::Store& store() { return kind_.get(); }

 private:
  Kind kind_;
};
TYPED_TEST_SUITE(ThinnedMetrics, StoreKinds);

MetricRow loss(core::AttemptNumber attempt, core::Step step, double value) {
  return {.job = 1, .attempt = attempt, .step = step, .at_ms = 1000 + step, .values = {{"loss", value}}};
}

void add(store::Store& store, const std::vector<MetricRow>& rows, std::size_t at_once = 7) {
  for (std::size_t from = 0; from < rows.size(); from += at_once) {
    store.add_metrics(std::span(rows).subspan(from, std::min(at_once, rows.size() - from)));
  }
}

TYPED_TEST(ThinnedMetrics, OfAJobWithoutStepsAreNone) {
  const auto thinned = this->store().thinned({.job = 1});
  EXPECT_TRUE(thinned.attempts.empty());
  EXPECT_TRUE(thinned.series.empty());
  EXPECT_TRUE(thinned.measures.empty());
}

TYPED_TEST(ThinnedMetrics, FewStepsAreAllThere) {
  auto& store = this->store();
  std::vector<MetricRow> rows;
  for (core::Step step = 1; step <= 5; ++step) rows.push_back(loss(1, step, static_cast<double>(10 - step)));
  rows[2].step_ms = 7;
  add(store, rows);
  const auto thinned = store.thinned({.job = 1});
  EXPECT_EQ(thinned.bucket_steps, 1);
  ASSERT_EQ(thinned.series.size(), 1U);
  EXPECT_EQ(text_of(thinned.series[0]), "1/1=9 1/2=8 1/3=7 1/4=6 1/5=5");
  EXPECT_EQ(thinned.series[0].points[0].spot.at_ms, 1001);
  EXPECT_EQ(thinned.series[0].values, 5);
  EXPECT_EQ(thinned.series[0].steps, 5);
  ASSERT_EQ(thinned.measures.size(), 1U) << "what was never measured is no curve";
  EXPECT_EQ(thinned.measures[0].name, "step_ms");
  EXPECT_EQ(text_of(thinned.measures[0]), "1/3=7");
  EXPECT_EQ(thinned.measures[0].steps, 3) << "since its first value";
}

TYPED_TEST(ThinnedMetrics, ABucketKeepsItsLowestItsHighestItsLastValueAndItsFirstGap) {
  auto& store = this->store();
  std::vector<MetricRow> rows;
  for (core::Step step = 0; step < 2000; ++step) rows.push_back(loss(1, step, 100));
  rows[110].values[0].value = 1;
  rows[170].values[0].value = 900;
  rows[180].values[0].value = kNan;
  rows[190].values[0].value = kNan;
  rows[1999].values[0].value = 50;
  add(store, rows, 512);
  const auto thinned = store.thinned({.job = 1, .points = 16});
  EXPECT_EQ(thinned.bucket_steps, 512) << "2000 steps in 4 buckets, a multiple of 32";
  EXPECT_EQ(text_of(thinned.series[0]),
            "1/110=1 1/170=900 1/180=nan 1/511=100 1/512=100 1/1023=100 1/1024=100 "
            "1/1535=100 1/1536=100 1/1999=50");
  EXPECT_EQ(thinned.series[0].values, 2000);
  std::vector<core::Step> lasts;
  for (const auto& point : thinned.series[0].points) {
    if (point.is_last) lasts.push_back(point.spot.step);
  }
  EXPECT_THAT(lasts, ElementsAre(511, 1023, 1535, 1999));
}

TYPED_TEST(ThinnedMetrics, StepsThatALaterAttemptRepeatsAreInBucketsOfTheirOwn) {
  auto& store = this->store();
  std::vector<MetricRow> rows;
  for (core::Step step = 1; step <= 1000; ++step) rows.push_back(loss(1, step, static_cast<double>(step)));
  for (core::Step step = 801; step <= 1400; ++step) rows.push_back(loss(2, step, static_cast<double>(step)));
  add(store, rows, 512);
  const auto thinned = store.thinned({.job = 1, .points = 4});
  ASSERT_EQ(thinned.attempts.size(), 2U);
  EXPECT_EQ(thinned.attempts[0].last, 1000);
  EXPECT_EQ(thinned.attempts[1].first, 801);
  EXPECT_EQ(text_of(thinned.series[0]), "1/1=1 1/800=800 1/801=801 1/1000=1000 2/801=801 2/1400=1400");
}

TYPED_TEST(ThinnedMetrics, AZoomGetsEveryStepOfItsRange) {
  auto& store = this->store();
  std::vector<MetricRow> rows;
  for (core::Step step = 1; step <= 3000; ++step) rows.push_back(loss(1, step, static_cast<double>(step)));
  for (core::Step step = 2001; step <= 2100; ++step) rows.push_back(loss(2, step, static_cast<double>(step)));
  add(store, rows, 512);
  const auto zoomed = store.thinned({.job = 1, .from = 1999, .to = 2002, .points = 100});
  EXPECT_EQ(zoomed.bucket_steps, 1);
  EXPECT_EQ(text_of(zoomed.series[0]), "1/1999=1999 1/2000=2000 1/2001=2001 1/2002=2002 2/2001=2001 2/2002=2002");
  EXPECT_EQ(zoomed.attempts[0].last, 3000) << "of the whole job";
  EXPECT_TRUE(store.thinned({.job = 1, .from = 5000, .to = 6000}).series.empty());
  EXPECT_TRUE(store.thinned({.job = 1, .from = 20, .to = 10}).series.empty());
}

TYPED_TEST(ThinnedMetrics, WhoFollowsAJobAsksForWhatIsNew) {
  auto& store = this->store();
  add(store, {loss(1, 1, 1), loss(1, 2, 2), loss(1, 3, 3), loss(2, 2, 4), loss(2, 3, 5)});
  EXPECT_EQ(text_of(store.thinned({.job = 1, .after_attempt = 1, .after_step = 2}).series[0]), "1/3=3 2/2=4 2/3=5");
  EXPECT_EQ(text_of(store.thinned({.job = 1, .after_attempt = 2, .after_step = 2}).series[0]), "2/3=5");
  const auto nothing = store.thinned({.job = 1, .after_attempt = 2, .after_step = 3});
  EXPECT_TRUE(nothing.series.empty());
  EXPECT_EQ(nothing.attempts.size(), 2U);
}

TYPED_TEST(ThinnedMetrics, AStepIsShownOnceRankZeroHasToldOfIt) {
  auto& store = this->store();
  MetricRow other = loss(1, 5, 1);
  other.rank = 1;
  add(store, {loss(1, 4, 3), other});
  EXPECT_EQ(text_of(store.thinned({.job = 1}).series[0]), "1/4=3");
  EXPECT_EQ(store.thinned({.job = 1}).attempts[0].last, 4);
  add(store, {loss(1, 5, 3)});
  EXPECT_EQ(text_of(store.thinned({.job = 1}).series[0]), "1/4=3 1/5=2") << "the mean of both";
}

TYPED_TEST(ThinnedMetrics, ALogarithmicAxisGetsAsManyBucketsForEachPowerOfTwo) {
  auto& store = this->store();
  std::vector<MetricRow> rows;
  for (core::Step step = 0; step < 4096; ++step) rows.push_back(loss(1, step, static_cast<double>(step)));
  add(store, rows, 512);
  const auto thinned = store.thinned({.job = 1, .points = 200, .logarithmic = true});
  const auto& points = thinned.series[0].points;
  const auto early = std::ranges::count_if(points, [](const auto& point) { return point.spot.step < 8; });
  EXPECT_EQ(early, 8) << "all of the first";
  EXPECT_LE(points.size(), 200U);
  EXPECT_GT(thinned.bucket_steps, 100);
}

TYPED_TEST(ThinnedMetrics, ManySeriesShareTheMostPointsOfAnAnswer) {
  auto& store = this->store();
  std::vector<MetricRow> rows;
  for (core::Step step = 0; step < 1000; ++step) {
    rows.push_back({.job = 1, .attempt = 1, .step = step});
    for (int i = 0; i < 200; ++i) rows.back().values.push_back({"s" + std::to_string(i), std::sin(step * i)});
  }
  add(store, rows, 100);
  const auto thinned = store.thinned({.job = 1, .points = 5000});
  std::size_t points = 0;
  for (const auto& one : thinned.series) points += one.points.size();
  EXPECT_EQ(thinned.series.size(), 200U);
  EXPECT_LE(points, store::kMostThinnedPoints);
}

TYPED_TEST(ThinnedMetrics, ARemovedJobHasNone) {
  auto& store = this->store();
  std::vector<MetricRow> rows;
  for (core::Step step = 0; step < 1000; ++step) rows.push_back(loss(1, step, 1));
  add(store, rows, 100);
  while (store.remove_metrics(1, 100) > 0) continue;
  EXPECT_TRUE(store.thinned({.job = 1, .points = 4}).attempts.empty());
  add(store, {loss(1, 2, 5)});
  EXPECT_EQ(text_of(store.thinned({.job = 1, .points = 4}).series[0]), "1/2=5") << "nothing is left of the old ones";
}

/// Every bucket of a curve against all steps of the job.
void expect_nothing_hidden(store::Store& store, const ThinRequest& request) {
  const auto thinned = store.thinned(request);
  const auto steps = store.metrics(1, 0, 0, -1, 1'000'000);
  for (const char* name : {"rate", "mean", "sum", "max", "step_ms"}) {
    std::map<std::tuple<core::AttemptNumber, bool, core::Step>, std::vector<double>> all, kept;
    std::map<std::pair<core::AttemptNumber, core::Step>, double> values;
    const auto bucket = [&](core::AttemptNumber attempt, core::Step step) {
      bool repeated = false;
      for (const auto& one : thinned.attempts) repeated |= one.attempt > attempt && step >= one.first;
      return std::tuple(attempt, repeated, step / thinned.bucket_steps);
    };
    std::int64_t count = 0;
    for (const auto& [row, ranks, aged] : steps) {
      const auto value = std::string(name) == "step_ms" ? row.step_ms : store::value_of(row, name);
      if (!value || row.step < request.from || row.step > request.to) continue;
      if (std::pair(row.attempt, row.step) <= std::pair(request.after_attempt, request.after_step)) continue;
      ++count;
      values[{row.attempt, row.step}] = *value;
      all[bucket(row.attempt, row.step)].push_back(*value);
    }
    for (const auto& [attempt, spot, is_last] : curve(thinned, name).points) {
      const auto reported = values.at({attempt, spot.step});
      EXPECT_TRUE(reported == spot.value || (std::isnan(reported) && std::isnan(spot.value))) << name << spot.step;
      kept[bucket(attempt, spot.step)].push_back(spot.value);
    }
    EXPECT_EQ(curve(thinned, name).values, count) << name;
    ASSERT_EQ(all.size(), kept.size()) << name;
    const auto ends = [](std::vector<double> of) {
      const double last = of.back();
      const auto nans = std::erase_if(of, [](double value) { return std::isnan(value); });
      const double lowest = of.empty() ? 0 : *std::ranges::min_element(of);
      const double highest = of.empty() ? 0 : *std::ranges::max_element(of);
      return std::tuple(lowest, highest, std::isnan(last) ? -1 : last, nans > 0);
    };
    for (const auto& [key, of_bucket] : all) {
      ASSERT_LE(kept[key].size(), store::kPointsABucket);
      EXPECT_EQ(ends(of_bucket), ends(kept[key])) << name;
    }
  }
}

TYPED_TEST(ThinnedMetrics, HideNoPeakAndNoGapOfAnyBucket) {
  for (const unsigned seed : {1U}) {
    auto& store = this->store();
    store.add_metrics({}, kDeclared);
    add(store, random_rows(seed), 50);
    for (const auto& request : requests()) {
      if (!request.logarithmic) expect_nothing_hidden(store, request);
    }
    while (store.remove_metrics(1, 1000) > 0) continue;
  }
}

TEST(SqliteThinning, IsTheSameWithAndWithoutStoredBucketsAndAfterARestart) {
  TemporaryFolder folder;
  const auto file = folder.path() / "muster.db";
  store::MemoryStore memory;
  auto sqlite = store::open_sqlite_store(file);
  const auto rows = random_rows(7);
  const std::span all(rows);
  for (auto* store : {static_cast<store::Store*>(&memory), sqlite.get()}) store->add_metrics({}, kDeclared);
  for (std::size_t from = 0; from < rows.size(); from += 50) {
    const auto piece = all.subspan(from, std::min<std::size_t>(50, rows.size() - from));
    memory.add_metrics(piece, {});
    sqlite->add_metrics(piece);
    if (from % 3000 != 0) continue;
    sqlite.reset();
    sqlite = store::open_sqlite_store(file);
    for (const auto& request : requests()) expect_equal(memory.thinned(request), sqlite->thinned(request));
  }
  for (const auto& request : requests()) expect_equal(memory.thinned(request), sqlite->thinned(request));
}

std::int64_t stored_buckets(const std::filesystem::path& file) {
  SQLite::Database database((file.parent_path() / "metrics.db").string(), SQLite::OPEN_READONLY);
  return database.execAndGet("SELECT count(*) FROM metric_buckets").getInt64();
}

// Rows of single ranks are as many times more as there are ranks, so a plot that read them would be as many times
// slower.
TEST(SqliteThinning, ReadsNoRowOfASingleRank) {
  TemporaryFolder folder;
  const auto file = folder.path() / "muster.db";
  store::MemoryStore memory;
  const auto sqlite = store::open_sqlite_store(file);
  for (auto* store : {static_cast<store::Store*>(&memory), sqlite.get()}) {
    store->add_metrics({}, kDeclared);
    add(*store, random_rows(7), 50);
  }
  {
    SQLite::Database database((file.parent_path() / "metrics.db").string(), SQLite::OPEN_READWRITE);
    EXPECT_GT(database.exec("DELETE FROM rank_steps"), 0);
    EXPECT_GT(database.exec("DELETE FROM series_values"), 0);
  }
  for (const auto& request : requests()) expect_equal(memory.thinned(request), sqlite->thinned(request));
}

TEST(SqliteThinning, ASeriesThatIsDeclaredAnewIsPutTogetherAnew) {
  TemporaryFolder folder;
  const auto file = folder.path() / "muster.db";
  store::MemoryStore memory;
  const auto sqlite = store::open_sqlite_store(file);
  const auto rows = random_rows(3);
  for (auto* store : {static_cast<store::Store*>(&memory), sqlite.get()}) {
    store->add_metrics({}, kDeclared);
    add(*store, rows, 500);
    const store::DeclaredSeries other{1, {.name = "mean", .over_ranks = spec::OverRanks::kMax}};
    store->add_metrics({}, {&other, 1});
  }
  EXPECT_EQ(stored_buckets(file), 0);
  for (const auto& request : requests()) expect_equal(memory.thinned(request), sqlite->thinned(request));
  const MetricRow next{.job = 1, .attempt = 3, .step = 9000, .values = {{"mean", 1}}};
  for (auto* store : {static_cast<store::Store*>(&memory), sqlite.get()}) store->add_metrics({&next, 1});
  EXPECT_GT(stored_buckets(file), 0);
  for (const auto& request : requests()) expect_equal(memory.thinned(request), sqlite->thinned(request));
}

TEST(SqliteThinning, StepsFarApartAndOutOfRangeDoNoHarm) {
  TemporaryFolder folder;
  const auto sqlite = store::open_sqlite_store(folder.path() / "muster.db");
  constexpr auto kMost = std::numeric_limits<core::Step>::max();
  add(*sqlite,
      {loss(1, -5, 1), loss(1, 0, 2), loss(1, 1'000'000'000, 3), loss(1, 900'000'000'000, 4), loss(1, 7, 5),
       loss(1, kMost, 6), loss(2, 3, 7)},
      1);
  EXPECT_EQ(text_of(sqlite->thinned({.job = 1, .points = 100}).series[0]),
            "1/0=2 1/7=5 1/1000000000=3 1/900000000000=4 2/3=7");
  EXPECT_EQ(text_of(sqlite->thinned({.job = 1, .points = 100, .logarithmic = true}).series[0]),
            "1/0=2 1/7=5 1/1000000000=3 1/900000000000=4 2/3=7");
}

}  // namespace
}  // namespace test
