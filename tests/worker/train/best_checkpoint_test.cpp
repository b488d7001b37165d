// Goal: with checkpoint.best the best step of a run is on disk, whatever happens, and a run continues from its newest
// step.
// Method: the rule alone, then Trainers in this process. A test writes the best value so far into a manifest by hand
// when it needs a value that nothing beats, or that anything beats. A copy of the folder between two lines stands for a
// crash.
#include "worker/train/saves.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/usage_error.h"
#include "fsdp/files/checkpoint.h"
#include "tests/manifest_text.h"
#include "tests/worker/temporary_folder.h"
#include "tests/worker/trainer_ranks.h"
#include "worker/train/step_measures.h"

namespace worker::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

const char* const kHeldOutLoss = "validation/loss";

BestCheckpoint by(spec::Better better, const std::string& name = kHeldOutLoss) {
  return BestCheckpoint({.name = name, .better = better});
}

TEST(BestCheckpoint, IsTheLowestOrTheHighest) {
  auto low = by(spec::Better::kLower), high = by(spec::Better::kHigher);
  for (auto* best : {&low, &high}) {
    EXPECT_TRUE(best->is_better(2)) << "the first";
    best->offer(10, 2);
    EXPECT_TRUE(best->committed());
    EXPECT_FALSE(best->is_better(2)) << "no better one";
  }
  EXPECT_TRUE(low.is_better(1.5));
  EXPECT_FALSE(low.is_better(2.5));
  EXPECT_FALSE(high.is_better(1.5));
  EXPECT_TRUE(high.is_better(2.5));
}

TEST(BestCheckpoint, IsNeverOfWhatIsNoNumberNorOfNoSeries) {
  const auto best = by(spec::Better::kHigher);
  for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    EXPECT_FALSE(best.is_better(value));
  }
  EXPECT_FALSE(BestCheckpoint().is_better(1));
}

TEST(BestCheckpoint, IsWhatWasSavedLast) {
  auto best = by(spec::Better::kLower);
  EXPECT_FALSE(best.step());
  EXPECT_TRUE(best.manifest().is_null());
  EXPECT_FALSE(best.committed()) << "nothing was offered";
  best.offer(10, 2);
  EXPECT_EQ(best.step(), 10) << "its own checkpoint tells it";
  best.dropped();
  EXPECT_FALSE(best.step()) << "it was not saved";
  best.offer(20, 1.5);
  best.committed();
  best.offer(30, 1.25);
  EXPECT_EQ(best.manifest().dump(), R"({"series":"validation/loss","step":30,"value":1.25})");
  best.dropped();
  EXPECT_EQ(best.manifest().dump(), R"({"series":"validation/loss","step":20,"value":1.5})");
  EXPECT_EQ(best.line("/c/step-00000020"), "best validation/loss 1.5 at step 20 (kept in /c/step-00000020)");
}

TEST(BestCheckpoint, IsTakenFromAManifestOfTheSameSeriesAlone) {
  const auto saved = fsdp::Json::parse(R"({"series":"validation/loss","step":20,"value":1.5})");
  auto best = by(spec::Better::kLower);
  ASSERT_TRUE(best.restore(saved));
  EXPECT_EQ(best.manifest(), saved);
  EXPECT_FALSE(best.is_better(1.5));
  best.forget();
  EXPECT_TRUE(best.is_better(9));

  EXPECT_FALSE(by(spec::Better::kLower, "validation/error").restore(saved));
  EXPECT_FALSE(BestCheckpoint().restore(saved));
  for (const char* damaged : {"null", "7", "{}", R"({"series":"validation/loss","step":20})",
                              R"({"series":"validation/loss","step":"20","value":1.5})"}) {
    auto other = by(spec::Better::kLower);
    EXPECT_FALSE(other.restore(fsdp::Json::parse(damaged))) << damaged;
    EXPECT_FALSE(other.step()) << damaged;
  }
}

TEST(BestCheckpoint, IsOfASeriesThatTheRecipeReports) {
  EXPECT_EQ(best_checkpoint_of("causal_lm", kHeldOutLoss).series(), kHeldOutLoss);
  EXPECT_EQ(best_checkpoint_of("causal_lm", "").series(), "");
  for (const char* wrong : {"validation/accuracy", "learning_rate"}) {
    EXPECT_THAT(message_of<base::UsageError>([&] { best_checkpoint_of("causal_lm", wrong); }), HasSubstr(wrong));
  }
}

/// A run of `steps` steps that validates after each step and saves only the best and the last one.
RunConfig best_run(const TemporaryFolder& folder, int steps) {
  RunConfig config = run_of(folder, R"(,"validation_every_steps":1,"steps":)" + std::to_string(steps));
  config.checkpoint.best = kHeldOutLoss;
  config.checkpoint.keep = 1;
  return config;
}

std::set<std::int64_t> steps_in(const fs::path& folder) {
  std::set<std::int64_t> steps;
  for (const auto& info : fsdp::list_checkpoints(folder).valid) steps.insert(info.step);
  return steps;
}

fs::path path_of(const fs::path& folder, std::int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
  return folder / name;
}

/// The best step that the newest checkpoint names; -1 if none.
std::int64_t best_step_in(const fs::path& folder) {
  const auto newest = fsdp::latest_valid(folder);
  const auto* best = newest ? newest->manifest.at("extra").find("best") : nullptr;
  return best == nullptr ? -1 : best->at("step").as_int();
}

void tell_best(const fs::path& checkpoint, std::int64_t step, double value) {
  auto manifest = fsdp::latest_valid(checkpoint.parent_path())->manifest;
  manifest["extra"]["best"]["step"] = step;
  manifest["extra"]["best"]["value"] = value;
  test::write_manifest(checkpoint / "manifest.json", manifest.dump());
}

/// Runs an earlier attempt that leaves steps 1 and 2 on disk.
void save_two_steps(RunConfig config) {
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep = 2;
  std::vector<Listener> ranks(1);
  ranks[0].save_at = 2;
  train(config, ranks);
  ASSERT_EQ(steps_in(config.checkpoint.folder), (std::set<std::int64_t>{1, 2}));
}

TEST(BestOfARun, IsSavedAtOnceByAllRanks) {
  const TemporaryFolder folder;
  constexpr std::int64_t kLast = 8;
  const auto config = best_run(folder, kLast);
  std::vector<Listener> ranks(2);
  train(config, ranks);
  std::vector<std::int64_t> expected;
  double lowest = std::numeric_limits<double>::infinity();
  std::int64_t best = 0;
  for (const auto& report : ranks[0].steps) {
    const auto value = value_of(report.values, kHeldOutLoss);
    ASSERT_TRUE(value);
    if (*value < lowest) best = report.step;
    if (*value < lowest || report.step == kLast) expected.push_back(report.step);
    lowest = std::min(lowest, *value);
  }
  for (const auto& rank : ranks) EXPECT_EQ(rank.saved, expected);
  EXPECT_EQ(best_step_in(config.checkpoint.folder), best);
  EXPECT_EQ(steps_in(config.checkpoint.folder), (std::set<std::int64_t>{best, kLast}));
}

// A value of -1 is never beaten, so the best step stays older than all later ones.
TEST(BestOfARun, StaysWhileNewerOnesComeAndGoAndTheRunGoesOnFromItsNewest) {
  const TemporaryFolder folder;
  auto config = best_run(folder, 8);
  save_two_steps(config);
  const fs::path checkpoints = config.checkpoint.folder;
  tell_best(path_of(checkpoints, 2), 1, -1);
  config.checkpoint.every_steps = 1;
  config.checkpoint.keep = 2;
  for (const auto& [attempt, last] : {std::pair{2, 5}, {3, 8}}) {
    std::vector<Listener> ranks(2);
    ranks[1].save_at = last == 8 ? 0 : 3;  // step 5
    train(config, ranks, attempt);
    EXPECT_EQ(numbers(ranks[0].steps).front(), attempt == 2 ? 3 : 6);
    EXPECT_EQ(steps_in(checkpoints), (std::set<std::int64_t>{1, last - 1, last}));
    EXPECT_EQ(best_step_in(checkpoints), 1);
  }
}

// Any value beats 1e9, so step 3 is better.
TEST(BestOfARun, GivesWayToABetterOne) {
  const TemporaryFolder folder;
  auto config = best_run(folder, 3);
  save_two_steps(config);
  const fs::path checkpoints = config.checkpoint.folder;
  tell_best(path_of(checkpoints, 2), 1, 1e9);
  std::vector<Listener> ranks(1);
  train(config, ranks, 2);
  EXPECT_EQ(steps_in(checkpoints), (std::set<std::int64_t>{3}));
  EXPECT_EQ(best_step_in(checkpoints), 3);
}

TEST(BestOfARun, IsThereAfterACrashBetweenAnyTwoLinesOfASave) {
  const TemporaryFolder folder;
  auto config = best_run(folder, 5);
  save_two_steps(config);
  const fs::path checkpoints = config.checkpoint.folder;
  tell_best(path_of(checkpoints, 2), 1, 1e9);
  std::vector<fs::path> crashes;
  fs::path before_removal;
  const auto crash = [&] {
    crashes.push_back(folder / ("crash-" + std::to_string(crashes.size())));
    fs::copy(checkpoints, crashes.back(), fs::copy_options::recursive);
  };
  before_sync = [&](const std::string&) { crash(); };
  before_rename = [&](const std::string& to) {
    crash();
    if (to.ends_with("/.tmp-step-00000001-attempt-2")) before_removal = crashes.back();
  };
  std::vector<Listener> second(1), third(1);
  train(config, second, 2);
  before_sync = nullptr;
  before_rename = nullptr;
  EXPECT_GE(crashes.size(), 8u);
  for (const auto& at : crashes) {
    ASSERT_FALSE(steps_in(at).empty()) << at;
    EXPECT_THAT(steps_in(at), Contains(best_step_in(at))) << at;
  }
  // Both checkpoints exist: the new one is committed, and the old one is not yet removed.
  ASSERT_FALSE(before_removal.empty());
  EXPECT_EQ(steps_in(before_removal), (std::set<std::int64_t>{1, 3}));
  EXPECT_EQ(best_step_in(before_removal), 3);
  config.checkpoint.folder = before_removal.native();
  train(config, third, 3);
  EXPECT_THAT(numbers(third[0].steps), ElementsAre(4, 5));
  EXPECT_EQ(steps_in(before_removal), (std::set<std::int64_t>{best_step_in(before_removal), 5}));
}

TEST(BestOfARun, BeginsAnewWhenItIsGoneFromTheDisk) {
  const TemporaryFolder folder;
  auto config = best_run(folder, 4);
  save_two_steps(config);
  const fs::path checkpoints = config.checkpoint.folder;
  tell_best(path_of(checkpoints, 2), 1, -1);
  fs::remove_all(path_of(checkpoints, 1));
  std::vector<Listener> ranks(2);
  train(config, ranks, 2);
  EXPECT_THAT(ranks[0].saved, Contains(3)) << "the first that is measured";
  EXPECT_THAT(steps_in(checkpoints), Contains(best_step_in(checkpoints)));
  EXPECT_GE(best_step_in(checkpoints), 3);
}

TEST(BestOfARun, IsForgottenWhenNobodyAsksForItAnyMore) {
  const TemporaryFolder folder;
  auto config = best_run(folder, 4);
  save_two_steps(config);
  const fs::path checkpoints = config.checkpoint.folder;
  tell_best(path_of(checkpoints, 2), 1, -1);
  config.checkpoint.best.clear();
  std::vector<Listener> ranks(1);
  train(config, ranks, 2);
  EXPECT_EQ(steps_in(checkpoints), (std::set<std::int64_t>{4}));
  EXPECT_EQ(best_step_in(checkpoints), -1);
}

TEST(BestOfARun, OfWhatIsNeverMeasuredIsRefusedBeforeTheFirstStep) {
  const TemporaryFolder folder;
  auto never = best_run(folder, 2), none = never;
  never.train.validation_every_steps = 0;
  none.data.validation_fraction = 0;
  for (const auto& [config, says] : {std::pair{never, "want train.validation_every_steps above 0"},
                                     {none, "want data.validation_fraction above 0"}}) {
    std::vector<Listener> ranks(1);
    std::string refusal;
    ranks[0].on_failure = [&](const std::string& text) { refusal = text; };
    train(config, ranks);
    EXPECT_THAT(refusal, HasSubstr("checkpoint.best = \"validation/loss\": nothing is validated; "));
    EXPECT_THAT(refusal, HasSubstr(says));
    EXPECT_TRUE(ranks[0].steps.empty());
  }
}

}  // namespace
}  // namespace worker::testing
