#include "cli/results_curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/text.h"
#include "fake_controller.h"

namespace test {
namespace {

using cli::Best;
using cli::Curve;
using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

muster::v1::Metric metric(std::uint32_t attempt, std::int64_t step, double loss) {
  muster::v1::Metric made;
  made.set_attempt(attempt);
  made.set_step(step);
  made.set_loss(loss);
  made.set_tokens_per_s(100 * loss);
  return made;
}

TEST(Curve, ForgetsWhatAResumedAttemptDidAgain) {
  Curve curve("loss");
  for (int step = 1; step <= 5; ++step) curve.add(metric(1, step, 5.0 - step));  // 0 at step 5
  curve.add(metric(2, 4, 2.0));
  EXPECT_EQ(curve.last()->step, 4) << "step 5 was lost with the attempt";
  EXPECT_EQ(curve.best(Best::kMin)->value, 2.0);
  EXPECT_EQ(curve.best(Best::kMin)->step, 3) << "the earliest of equal ones";
  EXPECT_EQ(curve.best(Best::kMax)->step, 1);
}

TEST(Curve, WhatIsNoNumberIsNeverTheBest) {
  Curve curve("loss");
  curve.add(metric(1, 1, std::nan("")));
  EXPECT_FALSE(curve.best(Best::kMin));
  curve.add(metric(1, 2, 3.0));
  curve.add(metric(1, 3, -INFINITY));
  EXPECT_EQ(curve.best(Best::kMin)->step, 2);
  EXPECT_EQ(curve.last()->step, 2);
  Curve validation("validation_loss");
  validation.add(metric(1, 1, 3.0));
  EXPECT_FALSE(validation.last()) << "no step had one";
}

/// Sweep s2 of four jobs, 2 to 5: the third is the best that did not fail, the last has no metrics.
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
  EXPECT_EQ(rows[0].at("best"), 2.0);
  EXPECT_EQ(rows[0].at("best_step"), 2);
  EXPECT_EQ(rows[0].at("final"), 4.5);
  EXPECT_EQ(rows[0].at("final_step"), 3);
  EXPECT_EQ(rows[0].at("settings"), (Json{{"env.A", "z"}, {"train.learning_rate", "3e-4"}}));
  EXPECT_EQ(rows[0].at("attempts"), 2);
  EXPECT_TRUE(rows[2].at("best").is_null());
  EXPECT_THAT(order_of(fake.muster({"results", "--sweep", "s2", "--json", "--best", "max", "--top", "1"})),
              ElementsAre(2))
      << "equal ones stay in the order of the sweep";
  EXPECT_EQ(Json::parse(fake.muster({"results", "--json", "--metric", "tokens_per_s"}).out)[0].at("best"), 900.0)
      << "of throughput, much is good";
}

TEST(Results, ComeAsTableAndCsvOfTheNewestSweep) {
  FakeController fake;
  EXPECT_EQ(fake.muster({"results", "--json"}).out, "[]\n");
  EXPECT_THAT(fake.muster({"results"}).err, HasSubstr("no sweep yet"));
  add_sweep(fake);
  const auto table = fake.muster({"results"});
  EXPECT_THAT(table.err, HasSubstr("sweep s2, the newest"));
  EXPECT_THAT(table.out, AllOf(HasSubstr("BEST LOSS"), HasSubstr("learning_rate"), HasSubstr("3e-4")));
  const auto csv = fake.muster({"results", "--csv", "--top", "2"});
  EXPECT_THAT(csv.out,
              StartsWith("job_id,name,index,state,attempts,env.A,train.learning_rate,metric,best,best_step,final,"
                         "final_step\n4,tune-0002,2,succeeded,2,z,3e-4,loss,2.0,2,4.5,3\n"
                         "2,tune-0000,0,succeeded,2,\"x,\"\"y\"\"\",1e-4,loss,3.0,2,4.5,3\n"));
  EXPECT_THAT(csv.err, HasSubstr("the first 2 of 4 jobs"));
  const auto narrow = fake.muster({"results"}, {{"COLUMNS", "60"}});
  std::istringstream lines(narrow.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(cli::width_of(line), 60U) << line;
  EXPECT_EQ(fake.muster({"results", "--sweep", "s99"}).exit, 3);
  EXPECT_EQ(fake.muster({"results", "--csv", "--json"}).exit, 2);
}

}  // namespace
}  // namespace test
