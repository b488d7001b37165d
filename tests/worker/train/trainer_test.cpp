// Goal: promises of a run that its result does not show: leaving at the right step, the fence's lock, the random state,
// the traffic between ranks, settings that reach the optimizer.
// Method: Trainers in this process, one thread per rank, each with a reporter that records and makes requests.
#include "worker/train/run.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>

#include <ATen/ops/rand.h>

#include <map>
#include <set>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "spec/recipes.h"
#include "tests/worker/temporary_folder.h"
#include "tests/worker/trainer_ranks.h"
#include "worker/train/optimizer_of_run.h"
#include "worker/train/recipe.h"
#include "worker/train/step_measures.h"
#include "worker/train/step_trace.h"
#include "worker/train/strategy.h"

namespace worker::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;

TEST(Trainer, AllRanksLeaveAfterTheVeryStepInWhichOneOfThemWasAsked) {
  const TemporaryFolder folder;
  std::vector<Listener> ranks(3);
  ranks[1].save_at = 3;
  const auto outcomes = train(run_of(folder, R"(,"steps":9,"batch_size":6)"), ranks);
  EXPECT_THAT(outcomes, Each(Field(&Outcome::code, spec::kExitRequeue)));
  for (const auto& rank : ranks) {
    EXPECT_THAT(numbers(rank.steps), ElementsAre(1, 2, 3));
    EXPECT_THAT(rank.saved, ElementsAre(3));
  }
}

// Goal: the controller cannot raise the fence between a rank's check and its publication, because raising needs the
// lock.
TEST(Trainer, HoldsTheFencesLockWhileACheckpointIsPublished) {
  const TemporaryFolder folder;
  const int lock = ::open((folder / "FENCE.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  const auto controller_must_wait = [lock] {
    const bool held = ::flock(lock, LOCK_EX | LOCK_NB) != 0;
    if (!held) ::flock(lock, LOCK_UN);
    return held;
  };
  std::vector<bool> held;
  before_rename = [&](const std::string& to) {
    if (to.find("/step-") != std::string::npos) held.push_back(controller_must_wait());
  };
  std::vector<bool> held_in_training;
  std::vector<Listener> ranks(1);
  ranks[0].on_step = [&] { held_in_training.push_back(controller_must_wait()); };
  RunConfig config = run_of(folder, R"(,"steps":4)", "", ".");
  config.checkpoint.every_steps = 2;
  train(config, ranks);
  before_rename = nullptr;
  ::close(lock);
  EXPECT_THAT(held, ElementsAre(true, true));
  EXPECT_THAT(held_in_training, ElementsAre(false, false, false, false));
}

// Goal: a rank was frozen between its check and its publication, and the controller has raised the fence without the
// lock. The rank leaves nothing behind.
TEST(Trainer, WithdrawsWhatItPublishesAfterTheFenceWasRaisedOverItsLock) {
  const TemporaryFolder folder;
  int published = 0;
  before_rename = [&](const std::string& to) {
    if (!to.ends_with("/step-00000002")) return;
    ++published;
    write_file(folder / "FENCE", "attempt 2\n");
  };
  std::vector<Listener> ranks(1);
  RunConfig config = run_of(folder, R"(,"steps":4)", "", ".");
  config.checkpoint.every_steps = 2;
  std::string fenced;
  ranks[0].on_failure = [&](const std::string& text) { fenced = text; };
  train(config, ranks);
  before_rename = nullptr;
  EXPECT_EQ(published, 1);
  EXPECT_THAT(fenced, ::testing::HasSubstr("attempt 2 owns this job now"));
  EXPECT_THAT(ranks[0].saved, ::testing::IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(folder / "step-00000002"));
  EXPECT_FALSE(std::filesystem::exists(folder / ".tmp-step-00000002-attempt-1"));
}

// Goal: a checkpoint that exists after a power cut is whole.
// Method: the test cannot cut the power, so it checks the order of flushes: each file, then the folder with the files'
// names, then the rename, then the parent folder.
TEST(Trainer, ACheckpointIsOnDiskBeforeItHasItsName) {
  const TemporaryFolder folder;
  std::vector<std::string> seen;
  before_sync = [&](const std::string& path) { seen.push_back("sync " + path); };
  before_rename = [&](const std::string& to) { seen.push_back("rename " + to); };
  std::vector<Listener> ranks(1);
  const RunConfig config = run_of(folder, R"(,"steps":2)");
  train(config, ranks);
  before_sync = nullptr;
  before_rename = nullptr;
  const auto place = [&](const std::string& start, const std::string& end) {
    const auto found = std::find_if(seen.rbegin(), seen.rend(), [&](const std::string& text) {
      return text.starts_with(start) && text.ends_with(end);
    });
    EXPECT_NE(found, seen.rend()) << start << " ... " << end;
    return seen.rend() - found;
  };
  const auto name = place("rename ", "/step-00000002");
  const auto held = place("sync ", std::filesystem::path(config.checkpoint.folder).filename().string());
  const auto weights = place("sync ", ".safetensors"), manifest = place("sync ", "/manifest.json");
  EXPECT_LT(weights, manifest);
  EXPECT_LT(manifest, name);
  EXPECT_LT(name, held);
  const auto folder_of_files =
      std::filesystem::path(seen.at(static_cast<std::size_t>(manifest - 1)).substr(5)).parent_path();
  const auto names = place("sync " + folder_of_files.string(), folder_of_files.filename().string());
  EXPECT_LT(manifest, names);
  EXPECT_LT(names, name);
}

TEST(Trainer, EveryNumberThatItReportsIsOfADeclaredSeries) {
  const TemporaryFolder folder;
  std::vector<Listener> ranks(2);
  std::vector<std::size_t> declared_before_step;
  ranks[0].on_step = [&] { declared_before_step.push_back(ranks[0].declared.size()); };
  train(run_of(folder, R"(,"steps":2,"validation_every_steps":2)"), ranks);
  const auto all = spec::series_of("causal_lm");
  std::vector<std::string> names;
  for (const auto& series : all) names.push_back(series.name);
  EXPECT_THAT(declared_before_step, ElementsAre(1, 1));
  for (const auto& rank : ranks) {
    ASSERT_EQ(rank.declared.size(), 1u);
    EXPECT_EQ(rank.declared[0], std::vector(all.begin(), all.end()));
    ASSERT_EQ(rank.steps.size(), 2u);
    // No step is skipped, no loss is scaled, the two of a GPU's memory are not known, data with tokens have no rate of
    // samples, and no moves are asked for.
    EXPECT_EQ(rank.steps[0].values.size(), names.size() - 8) << "not validated";
    EXPECT_EQ(rank.steps[1].values.size(), names.size() - 6);
    for (const auto& value : rank.steps[1].values) EXPECT_THAT(names, ::testing::Contains(value.series));
  }
  for (const char* agreed : {"loss", "validation/loss", "grad_norm"}) {
    EXPECT_EQ(value_of(ranks[0].steps[1].values, agreed), value_of(ranks[1].steps[1].values, agreed)) << agreed;
  }
}

TEST(Trainer, TheLearningRateFollowsItsScheduleOverAResume) {
  const TemporaryFolder folder;
  const RunConfig config = run_of(folder, R"(,"steps":5,"warmup_steps":2)");
  std::vector<Listener> first(1), second(1);
  first[0].save_at = 3;
  train(config, first);
  train(config, second, 2);
  ASSERT_THAT(numbers(first[0].steps), ElementsAre(1, 2, 3));
  ASSERT_THAT(numbers(second[0].steps), ElementsAre(4, 5));
  for (const auto* attempt : {&first[0], &second[0]}) {
    for (const auto& report : attempt->steps) {
      EXPECT_EQ(value_of(report.values, "learning_rate"), learning_rate(config.train, report.step - 1))
          << "step " << report.step;
    }
  }
}

/// Draws a random number in each step, as dropout would.
std::vector<double> drawn(const RunConfig& config, std::int64_t attempt = 1, int save_at = 0) {
  std::vector<double> numbers;
  std::vector<Listener> alone(1);
  alone[0].save_at = save_at;
  alone[0].on_step = [&] { numbers.push_back(at::rand({}).item<double>()); };
  train(config, alone, attempt);
  return numbers;
}

TEST(Trainer, AResumedRunDrawsTheRandomNumbersOfAnUninterruptedOne) {
  const TemporaryFolder folder;
  const auto whole = drawn(run_of(folder, R"(,"steps":4)", "", "whole"));
  ASSERT_EQ(whole.size(), 4u);
  EXPECT_NE(whole[0], whole[1]) << "each step draws its own";
  const RunConfig config = run_of(folder, R"(,"steps":4)");
  const auto first = drawn(config, 1, 2), second = drawn(config, 2);
  EXPECT_THAT(first, ElementsAre(whole[0], whole[1]));
  EXPECT_THAT(second, ElementsAre(whole[2], whole[3]));
}

TEST(Trainer, EachRankAndEachStepHasASeedOfItsOwn) {
  std::set<std::uint64_t> seeds;
  for (int seed = 0; seed < 4; ++seed) {
    for (int step = 0; step < 100; ++step) {
      for (int rank = 0; rank < 16; ++rank) seeds.insert(step_seed(seed, step, rank));
    }
  }
  EXPECT_EQ(seeds.size(), 4u * 100 * 16);
}

/// The bytes that one rank of two sends in a step: gathers once a micro-batch, the rest once a step.
struct Traffic {
  std::int64_t gathers, rest;
};

Traffic traffic(const std::string& train_members, const std::string& fsdp_members = "") {
  std::int64_t bytes[2];
  for (const int micro_batches : {1, 2}) {
    const TemporaryFolder folder;
    std::vector<Listener> ranks(2);
    const std::string split = R"(,"steps":2,"batch_size":8,"micro_batch_size":)" + std::to_string(4 / micro_batches);
    train(run_of(folder, split + train_members, fsdp_members), ranks);
    bytes[micro_batches - 1] = ranks[0].steps.back().bytes_communicated;
  }
  return {bytes[1] - bytes[0], 2 * bytes[0] - bytes[1]};
}

TEST(Trainer, GradientsTravelOnceAStepAndInFp32WhateverTheParametersTravelIn) {
  constexpr std::int64_t kFewBytes = 200;  // the loss, the stop and the norm
  const auto plain = traffic("");
  const auto kept = traffic("", R"(,"reshard_after_forward":false)");
  const auto bf16 = traffic(R"(,"precision":"bf16")");
  const auto fp16 = traffic(R"(,"precision":"fp16")");
  EXPECT_GE(plain.rest, kept.gathers) << "with parameters kept, as much is gathered as is reduced";
  EXPECT_LE(plain.rest, kept.gathers + kFewBytes);
  EXPECT_GT(plain.gathers, kept.gathers * 3 / 2) << "the layers' parameters are gathered for backward again";
  EXPECT_EQ(kept.rest, plain.rest);
  EXPECT_EQ(bf16.gathers * 2, plain.gathers);
  EXPECT_EQ(bf16.rest, plain.rest);
  EXPECT_EQ(fp16.gathers, bf16.gathers);
  EXPECT_EQ(fp16.rest, bf16.rest) << "the scale of the loss costs no collective";
}

TEST(Trainer, EverySettingOfTheShardingReachesTheUnits) {
  const TemporaryFolder folder;
  fsdp::DeviceMesh alone(nullptr, 0, 1, {});
  const auto options_of = [&](const RunConfig& config) {
    const auto recipe = make_recipe(config);
    Parts parts(recipe->parts(), alone, config);
    std::vector<fsdp::ShardOptions> options;
    for (const auto& unit : parts.trained().units()) options.push_back(unit->options());
    return options;
  };
  const RunConfig usual = run_of(folder, "");
  RunConfig changed = run_of(folder, R"(,"precision":"bf16")", R"(,"reshard_after_forward":false)");
  changed.fsdp.prefetch = false;
  const auto plain = options_of(usual), other = options_of(changed);
  ASSERT_EQ(plain.size(), 6u) << "the embedding, three layers, the head and the root";
  ASSERT_EQ(other.size(), plain.size());
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(plain[i].prefetch_depth, 1) << i;
    EXPECT_EQ(other[i].prefetch_depth, 0) << i;
    EXPECT_EQ(plain[i].precision.param_dtype, at::kFloat) << i;
    EXPECT_EQ(other[i].precision.param_dtype, at::kBFloat16) << i;
    EXPECT_EQ(plain[i].reshard_after_forward, i + 2 < plain.size()) << i;
    EXPECT_EQ(plain[i].runs_last, i + 2 == plain.size()) << i;
    EXPECT_FALSE(other[i].reshard_after_forward) << i;
  }
}

TEST(Trainer, CheckpointingActivationsChangesNoBit) {
  const auto losses = [](const std::string& fsdp, std::int64_t& bytes) {
    const TemporaryFolder folder;
    std::vector<Listener> listeners(2);
    train(run_of(folder, R"(,"steps":4)", fsdp), listeners);
    std::vector<double> out;
    for (const auto& step : listeners[0].steps) out.push_back(value_of(step.values, "loss").value_or(-1));
    bytes = listeners[0].steps.back().bytes_communicated;
    return out;
  };
  std::int64_t plain_bytes = 0, bytes = 0;
  const auto plain = losses("", plain_bytes);
  for (const char* what : {"block", "attention", "mlp"}) {
    for (const char* every : {"1", "2"}) {
      const std::string keys =
          std::string(R"(,"activation_checkpointing":")") + what + R"(","activation_checkpointing_every":)" + every;
      EXPECT_EQ(losses(keys, bytes), plain) << keys;
      EXPECT_EQ(bytes, plain_bytes) << keys;
    }
    for (const std::string keeps : {"linear", "attention", "both"}) {
      if (what == std::string("mlp") && keeps != "linear") continue;
      const std::string keys = std::string(R"(,"activation_checkpointing":")") + what +
                               R"(","activation_checkpointing_keeps":")" + keeps + "\"";
      EXPECT_EQ(losses(keys, bytes), plain) << keys;
      EXPECT_EQ(bytes, plain_bytes) << keys;
    }
  }
}

// Goal: an attempt that was killed while it saved leaves no files for ever.
TEST(Trainer, ClearsAwayTheHalfSavedCheckpointsOfEarlierAttempts) {
  const TemporaryFolder folder;
  const auto leftover = [&](int attempt) {
    return folder / ("checkpoints/.tmp-step-00000003-attempt-" + std::to_string(attempt));
  };
  for (const int attempt : {1, 2, 3}) write_file(leftover(attempt) / "rank-00000-of-00001.safetensors", "half");
  std::vector<Listener> ranks(1);
  train(run_of(folder, R"(,"steps":1)"), ranks, 2);
  EXPECT_FALSE(std::filesystem::exists(leftover(1)));
  EXPECT_FALSE(std::filesystem::exists(leftover(2)));
  EXPECT_TRUE(std::filesystem::exists(leftover(3))) << "that attempt may be writing it";
}

// Goal: the validation loss comes from text that was not trained on.
// Method: the training text has one letter, the held-out text another. Then the held-out text is changed.
TEST(Trainer, ValidatesOnTheTextThatItDidNotLearnFrom) {
  constexpr int kSamples = 40, kHeldOut = 10, kLength = 32;
  std::map<char, std::vector<double>> losses;
  std::map<char, double> validation;
  for (const char held_out : {'b', 'c'}) {
    const TemporaryFolder folder;
    // The last target of the last training sample lies one token further.
    std::string text((kSamples - kHeldOut) * kLength + 1, 'a');
    text.resize(kSamples * kLength, held_out);
    write_file(folder / "text/a.txt", text);
    RunConfig config = run_of(folder, R"(,"steps":30,"batch_size":8,"validation_every_steps":30)");
    config.data.source = "folder";
    config.data.path = (folder / "text").native();
    config.data.validation_fraction = 0.25;
    std::vector<Listener> ranks(1);
    train(config, ranks);
    ASSERT_EQ(ranks[0].steps.size(), 30u);
    for (const auto& report : ranks[0].steps) losses[held_out].push_back(*value_of(report.values, "loss"));
    const auto measured = value_of(ranks[0].steps.back().values, "validation/loss");
    ASSERT_TRUE(measured);
    validation[held_out] = *measured;
    EXPECT_GT(validation[held_out], losses[held_out].back() + 2) << "what was learnt is no help";
  }
  EXPECT_EQ(losses['b'], losses['c']);
  EXPECT_NE(validation['b'], validation['c']);
}

// Goal: manual pages that are installed while a run waits for its next attempt neither end the run nor change its
// result.
// Method: pages appear where there were too few, so that "auto" now means another text; then more pages appear.
TEST(Trainer, ManualPagesThatComeAndGoDoNotEndARun) {
  for (const std::size_t bytes_before : {0u, 600u << 10}) {
    const TemporaryFolder folder;
    if (bytes_before > 0) write_file(folder / "man/man1/first.1", std::string(bytes_before, 'a'));
    RunConfig config = run_of(folder, R"(,"steps":6,"batch_size":4)", "", "whole");
    config.data.source = "auto";
    config.data.man_folder = (folder / "man").native();
    std::vector<Listener> whole(2), first(2), second(2);
    train(config, whole);
    config.checkpoint.folder = (folder / "broken").native();
    first[1].save_at = 3;
    train(config, first);
    write_file(folder / "man/man8/second.8", std::string(600 << 10, 'b'));
    const auto outcomes = train(config, second, 2);
    EXPECT_THAT(outcomes, Each(Field(&Outcome::code, spec::kExitDone)));
    ASSERT_THAT(numbers(second[0].steps), ElementsAre(4, 5, 6));
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(value_of(second[0].steps[i].values, "loss"), value_of(whole[0].steps[i + 3].values, "loss"));
    }
    for (const char* file : {"rank-00000-of-00002.safetensors", "rank-00001-of-00002.safetensors"}) {
      const std::string name = std::string("/step-00000006/") + file;
      EXPECT_TRUE(read_file(folder / ("broken" + name)) == read_file(folder / ("whole" + name))) << file;
    }
  }
}

TEST(Trainer, EverySettingOfTheOptimizerReachesIt) {
  const TemporaryFolder folder;
  std::map<std::string, std::string> files;
  for (const char* setting :
       {"clip_norm\":1.0", "clip_norm\":0.001", "weight_decay\":0.9", "beta1\":0.5", "beta2\":0.5", "epsilon\":0.1"}) {
    std::vector<Listener> ranks(1);
    const std::string label = std::to_string(files.size());
    train(run_of(folder, std::string(R"(,"steps":2,"batch_size":2,")") + setting, "", label), ranks);
    const auto file = read_file(folder / (label + "/step-00000002/rank-00000-of-00001.safetensors"));
    ASSERT_FALSE(file.empty());
    for (const auto& [other, content] : files) EXPECT_NE(file, content) << setting << " and " << other;
    files[setting] = file;
  }
}

}  // namespace
}  // namespace worker::testing
