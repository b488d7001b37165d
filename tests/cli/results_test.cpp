#include "cli/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/cli_text.h"
#include "tests/cli/fake_controller.h"

namespace test {
namespace {

using cli::Curve;
using spec::Better;
using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

muster::v1::Metric metric(std::uint32_t attempt, std::int64_t step, double loss) {
  muster::v1::Metric made;
  made.set_attempt(attempt);
  made.set_step(step);
  (*made.mutable_series())["loss"] = loss;
  (*made.mutable_series())["tokens_per_s"] = 100 * loss;
  return made;
}

void set_validation(muster::v1::Metric& metric, double loss) {
  (*metric.mutable_series())["validation/loss"] = loss;
}

TEST(Curve, ForgetsWhatAResumedAttemptDidAgain) {
  Curve curve("loss");
  for (int step = 1; step <= 5; ++step) curve.add(metric(1, step, 5.0 - step));  // the value is 0 at step 5
  curve.add(metric(2, 4, 2.0));
  EXPECT_EQ(curve.last()->step, 4) << "step 5 was lost with the attempt";
  EXPECT_EQ(curve.best(Better::kLower)->value, 2.0);
  EXPECT_EQ(curve.best(Better::kLower)->step, 3) << "the earliest of equal ones";
  EXPECT_EQ(curve.best(Better::kHigher)->step, 1);
}

TEST(Curve, WhatIsNoNumberIsNeverTheBest) {
  Curve curve("loss");
  curve.add(metric(1, 1, std::nan("")));
  EXPECT_FALSE(curve.best(Better::kLower));
  curve.add(metric(1, 2, 3.0));
  curve.add(metric(1, 3, -INFINITY));
  EXPECT_EQ(curve.best(Better::kLower)->step, 2);
  EXPECT_EQ(curve.last()->step, 2);
  Curve validation("validation/loss");
  validation.add(metric(1, 1, 3.0));
  EXPECT_FALSE(validation.last()) << "no step had one";
}

/// Adds sweep s2 with the jobs 2 to 5. The third is the best that did not fail; the last has no metrics.
void add_sweep(FakeController& fake) {
  fake.with([](FakeState& s) {
    s.jobs.push_back(sample_job(1, "running"));
    const double best[] = {3.0, 1.0, 2.0};
    for (std::int64_t i = 0; i < 4; ++i) {
      auto job = sample_job(i + 2, i == 1 ? "failed" : i == 3 ? "pending" : "succeeded");
      job.set_name("tune-000" + std::to_string(i));
      auto& element = *job.mutable_sweep();
      element.set_sweep("s2");
      element.set_index(static_cast<std::uint32_t>(i));
      (*element.mutable_settings())["train.learning_rate"] = i < 2 ? "1e-4" : "3e-4";
      (*element.mutable_settings())["env.A"] = i == 0 ? "x,\"y\"" : "z";
      s.jobs.push_back(job);
      if (i < 3) s.metrics_of[i + 2] = {metric(1, 1, 9), metric(1, 2, best[i]), metric(1, 3, 4.5)};
    }
    s.metrics_of[5] = {};
  });
}

std::vector<std::int64_t> order_of(const Finished& done) {
  std::vector<std::int64_t> ids;
  for (const auto& row : Json::parse(done.out)) ids.push_back(row.at("job_id"));
  return ids;
}

TEST(Results, AreSortedBestFirstAndWhatFailedComesLast) {
  FakeController fake;
  add_sweep(fake);
  const auto done = fake.muster({"results", "--sweep", "s2", "--json"});
  EXPECT_EQ(done.exit, 0) << done.err;
  EXPECT_THAT(order_of(done), ElementsAre(4, 2, 5, 3));
  const auto rows = Json::parse(done.out);
  EXPECT_EQ(rows[0].at("api_version"), "v1");
  EXPECT_EQ(rows[0].at("ranked_by"), "mean loss of the last 20 steps");
  EXPECT_NEAR(rows[0].at("value"), (9 + 2.0 + 4.5) / 3, 1e-9);
  EXPECT_EQ(rows[0].at("value_step"), 3);
  EXPECT_EQ(rows[0].at("best"), 2.0);
  EXPECT_EQ(rows[0].at("best_step"), 2);
  EXPECT_EQ(rows[0].at("final"), 4.5);
  EXPECT_EQ(rows[0].at("final_step"), 3);
  EXPECT_EQ(rows[0].at("settings"), (Json{{"env.A", "z"}, {"train.learning_rate", "3e-4"}}));
  EXPECT_EQ(rows[0].at("attempts"), 2);
  EXPECT_TRUE(rows[2].at("best").is_null());
  EXPECT_THAT(order_of(fake.muster({"results", "--sweep", "s2", "--json", "--best", "max", "--top", "1"})),
              ElementsAre(2));
  EXPECT_EQ(Json::parse(fake.muster({"results", "--json", "--metric", "tokens_per_s"}).out)[0].at("best"), 900.0)
      << "of throughput, much is good";
}

// Ten thousand jobs are asked for in eleven calls, not in ten thousand.
TEST(Results, AskOnceForTheWholeSweep) {
  FakeController fake;
  add_sweep(fake);
  ASSERT_EQ(fake.muster({"results", "--sweep", "s2", "--json"}).exit, 0);
  fake.with([](FakeState& s) {
    ASSERT_EQ(s.list_requests.size(), 1U);
    EXPECT_TRUE(s.list_requests.front().with_series());
    EXPECT_TRUE(s.metrics_requests.empty());
    EXPECT_THAT(s.asked, ElementsAre("metrics of s2"));
  });
}

TEST(Results, OfJobsThatNeverRanAskForNoValues) {
  FakeController fake;
  fake.with([](FakeState& s) {
    s.jobs.push_back(sample_job(1, "pending"));
    s.jobs.back().mutable_sweep()->set_sweep("s1");
    s.metrics_of[1] = {};
  });
  EXPECT_THAT(fake.muster({"results", "--sweep", "s1"}).err, HasSubstr("sorted by the mean loss"));
  fake.with([](FakeState& s) { EXPECT_TRUE(s.asked.empty()); });
}

TEST(Results, ComeAsTableAndCsvOfTheNewestSweep) {
  FakeController fake;
  EXPECT_EQ(fake.muster({"results", "--json"}).out, "[]\n");
  EXPECT_THAT(fake.muster({"results"}).err, HasSubstr("no sweep yet"));
  add_sweep(fake);
  const auto table = fake.muster({"results"});
  EXPECT_THAT(table.err, HasSubstr("sweep s2, the newest"));
  EXPECT_THAT(table.err, HasSubstr("by the mean loss of the last 20 steps; no job has reported a validation loss\n"));
  EXPECT_THAT(table.out,
              AllOf(HasSubstr("MEAN LOSS"), Not(HasSubstr("FINAL")), HasSubstr("learning_rate"), HasSubstr("3e-4")));
  const auto csv = fake.muster({"results", "--csv", "--top", "2"});
  EXPECT_THAT(csv.out,
              StartsWith("job_id,name,index,state,attempts,env.A,train.learning_rate,metric,best,best_step,final,"
                         "final_step,value,value_step,ranked_by\n"
                         "4,tune-0002,2,succeeded,2,z,3e-4,loss,2.0,2,4.5,3,5.166666666666667,3,"
                         "mean loss of the last 20 steps\n"
                         "2,tune-0000,0,succeeded,2,\"x,\"\"y\"\"\",1e-4,loss,3.0,2,4.5,3,5.5,3,"
                         "mean loss of the last 20 steps\n"));
  EXPECT_THAT(csv.err, HasSubstr("the first 2 of 4 jobs"));
  const auto narrow = fake.muster({"results"}, {{"COLUMNS", "60"}});
  std::istringstream lines(narrow.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(cli::width_of(line), 60U) << line;
  EXPECT_EQ(fake.muster({"results", "--sweep", "s99"}).exit, 3);
  EXPECT_EQ(fake.muster({"results", "--csv", "--json"}).exit, 2);
}

// The training loss of a step is that of one batch. So the best of many steps is the luckiest batch.
TEST(Results, AreNotRankedByTheLuckiestBatch) {
  FakeController fake;
  fake.with([](FakeState& s) {
    for (std::int64_t id : {1, 2}) {
      s.jobs.push_back(sample_job(id, "succeeded"));
      s.jobs.back().mutable_sweep()->set_sweep("s1");
      for (int step = 1; step <= 100; ++step) {
        // Job 1 is better all the time; job 2 had one easy batch.
        s.metrics_of[id].push_back(metric(1, step, id == 1 ? 2.0 : step == 56 ? 0.5 : 2.5));
      }
    }
  });
  EXPECT_THAT(order_of(fake.muster({"results", "--json"})), ElementsAre(1, 2));
  fake.with([](FakeState& s) { set_validation(s.metrics_of[2][79], 2.2); });
  const auto validated = Json::parse(fake.muster({"results", "--json"}).out);
  EXPECT_EQ(validated[0].at("job_id"), 2) << "one has a validation loss, so it counts";
  EXPECT_EQ(validated[0].at("metric"), "validation/loss");
  EXPECT_EQ(validated[0].at("ranked_by"), "lowest validation/loss");
  EXPECT_EQ(validated[0].at("value"), 2.2);
  EXPECT_TRUE(validated[1].at("value").is_null());
  fake.with([](FakeState& s) {
    set_validation(s.metrics_of[1][19], 1.9);
    set_validation(s.metrics_of[1][99], 2.4);
  });
  const auto table = fake.muster({"results"});
  EXPECT_THAT(table.out, AllOf(HasSubstr("BEST VALIDATION LOSS"), HasSubstr("FINAL")));
  EXPECT_THAT(table.err, HasSubstr("by the lowest validation/loss\n"));
  EXPECT_THAT(order_of(fake.muster({"results", "--json"})), ElementsAre(1, 2));
  EXPECT_THAT(order_of(fake.muster({"results", "--json", "--metric", "loss", "--best", "max"})), ElementsAre(2, 1));
}

TEST(Results, CompareBySeriesThatNoRecipeKnows) {
  FakeController fake;
  fake.with([](FakeState& s) {
    for (std::int64_t id : {1, 2}) {
      s.jobs.push_back(sample_job(id, "succeeded"));
      s.jobs.back().mutable_sweep()->set_sweep("s1");
      for (int step = 1; step <= 4; ++step) {
        auto& row = s.metrics_of[id].emplace_back(metric(1, step, 2.0));
        (*row.mutable_series())["eval/accuracy"] = id == 1 ? 0.5 : 0.5 + 0.1 * (step % 3);
        (*row.mutable_series())["entropy"] = static_cast<double>(id);
      }
    }
  });
  const auto best = Json::parse(fake.muster({"results", "--json"}).out);
  EXPECT_EQ(best[0].at("job_id"), 2) << "it is measured on data that is not trained on, and much is good";
  EXPECT_EQ(best[0].at("ranked_by"), "highest eval/accuracy");
  EXPECT_EQ(best[0].at("best_step"), 2);
  EXPECT_THAT(fake.muster({"results", "--csv"}).out,
              HasSubstr(",eval/accuracy,0.7,2,0.6,4,0.7,2,highest eval/accuracy"));
  const auto unsure = fake.muster({"results", "--metric", "entropy"});
  EXPECT_EQ(unsure.exit, 2);
  EXPECT_THAT(unsure.err, AllOf(HasSubstr("--metric entropy"), HasSubstr("add --best min or --best max")));
  EXPECT_THAT(order_of(fake.muster({"results", "--json", "--metric", "entropy", "--best", "min"})), ElementsAre(1, 2));
  EXPECT_THAT(order_of(fake.muster({"results", "--json", "--metric", "entropy", "--best", "max"})), ElementsAre(2, 1));
  const auto wrong = fake.muster({"results", "--metric", "eval_accuracy"});
  EXPECT_EQ(wrong.exit, 2);
  EXPECT_THAT(wrong.err, HasSubstr("did you mean eval/accuracy"));
}

TEST(Curve, IsSmoothedOverItsLastStepsAsFarAsThereAreSome) {
  Curve curve("loss");
  EXPECT_FALSE(curve.smoothed());
  curve.add(metric(1, 1, 4.0));
  EXPECT_EQ(curve.smoothed()->value, 4.0);
  for (int step = 2; step <= 40; ++step) curve.add(metric(1, step, step));
  EXPECT_EQ(curve.smoothed()->value, 30.5) << "of steps 21 to 40";
  EXPECT_EQ(curve.smoothed()->step, 40);
}

}  // namespace
}  // namespace test
