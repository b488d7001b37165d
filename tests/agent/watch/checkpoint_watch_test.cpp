// Goal: a checkpoint counts once it is complete, and never before, whatever a program calls it.
// Method: files and folders that a test writes as a program would; the time is the test's.
#include "agent/watch/checkpoint_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>

#include "agent/watch/checkpoint_name.h"
#include "tests/temporary_folder.h"

namespace agent::watch {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;
using Told = std::vector<std::string>;

TEST(CheckpointNames, TheStepIsTheNumberThatAWordExplainsElseTheLastOneByItself) {
  using enum NamedStep::By;
  struct {
    const char* name;
    std::int64_t step;
    NamedStep::By by;
  } const cases[] = {{"step-40", 40, kStep},
                     {"checkpoint-500", 500, kCheckpoint},
                     {"epoch=3-step=1200.ckpt", 1200, kStep},
                     {"epoch=1-step=100-v1.ckpt", 100, kStep},
                     {"ckpt_00040.pt", 40, kCheckpoint},
                     {"iter_0000400", 400, kStep},
                     {"global_step400", 400, kStep},
                     {"step_100_bf16.pt", 100, kStep},
                     {"step100-of-4000.pt", 100, kStep},
                     {"step_100_rank_0.pt", 100, kStep},
                     {"step-100-llama-7b", 100, kStep},
                     {"step100-20260101-120000.pt", 100, kStep},
                     {"ep0-ba1000-rank0.pt", 1000, kStep},
                     {"model_iter_400_epoch_3.pth", 400, kStep},
                     {"weights.12.h5", 12, kModel},
                     {"model-7.safetensors", 7, kModel},
                     {"step-100-model-00001-of-00003.safetensors", 100, kStep},
                     {"model-1-of-3.pt", 1, kModel},
                     {"7b-sft-900", 900, kAlone},
                     {"400-20260101-120000.pt", 400, kAlone},
                     {"100-of-4000.pt", 100, kAlone},
                     {"run1-lr0.001-0300.pt", 300, kAlone},
                     {"epoch=01-val_loss=0.80.ckpt", 1, kEpoch},
                     {"Epoch_12.pt", 12, kEpoch}};
  for (const auto& one : cases) {
    const auto found = step_in_name(one.name);
    ASSERT_TRUE(found) << one.name;
    EXPECT_EQ(found->step, one.step) << one.name;
    EXPECT_EQ(found->by, one.by) << one.name;
  }
  for (const auto* name :
       {"last.ckpt", "model.h5", "", "run-99999999999999999999", "llama-7b", "best-val_loss=0.80.ckpt", "20260101.pt",
        "bf16-rank0", "mp_rank_00_model_states.pt", "model-00001-of-00003.safetensors", "rank_0.pt", "shard-3"}) {
    EXPECT_EQ(step_in_name(name), std::nullopt) << name;
  }
}

TEST(CheckpointNames, DraftsAreKnownByAWord) {
  for (const auto* name :
       {"step-40.tmp", "tmp-checkpoint-500", "40.orbax-checkpoint-tmp-12", "a.incomplete", "b.lock"}) {
    EXPECT_TRUE(is_draft_name(name)) << name;
  }
  for (const auto* name : {"step-40", "temperature-3", "template.pt", "blocks-2"})
    EXPECT_FALSE(is_draft_name(name)) << name;
}

TEST(WildcardsOfAPath, MatchNamesAndNothingElse) {
  const test::TemporaryFolder folder;
  const auto root = folder.path().string();
  for (const auto* name : {"a/step-1", "a/step-20", "b/step-3", "a/.hidden-4", "a/other", "w[1]*/step-5"}) {
    fs::create_directories(folder.path() / name);
  }
  const auto found = [&](const std::string& pattern) {
    std::size_t budget = 1'000;
    Told names;
    for (const auto& match : Wildcards(pattern).find(budget)) {
      names.push_back(match.path.substr(root.size() + 1) + " " + match.name);
    }
    std::ranges::sort(names);
    return names;
  };
  EXPECT_EQ(found(root + "/a/step-*"), (Told{"a/step-1 step-1", "a/step-20 step-20"}));
  EXPECT_EQ(found(root + "/?/step-[13]"), (Told{"a/step-1 step-1", "b/step-3 step-3"}));
  EXPECT_EQ(found(root + "/[ab]/other"), (Told{"a/other a"}));
  EXPECT_EQ(found(root + "/a/other/"), (Told{"a/other "}));
  EXPECT_EQ(found(root + "/" + Wildcards::plain("w[1]*") + "/*"), (Told{"w[1]*/step-5 step-5"}));
  EXPECT_EQ(found(root + "/none/*"), Told{});
  const auto group = [&](const std::string& pattern) {
    std::size_t entries = 1'000;
    const auto matches = Wildcards(root + pattern).find(entries);
    return matches.size() == 1 ? matches[0].group : "-";
  };
  fs::create_directories(folder.path() / "g/8-step-40-of-900");
  EXPECT_EQ(group("/g/*-step-(*)-of-*"), "40");
  EXPECT_EQ(group("/g/*-of-(*)"), "900");
  EXPECT_EQ(group("/g/(*)-step-*"), "8");
  EXPECT_EQ(group("/g/8-(*)-of-900"), "") << "it matches no digits alone";
  EXPECT_EQ(group("/g/8-step-*"), "");
  fs::create_directories(folder.path() / "p/best (1)-40");
  EXPECT_EQ(group("/p/best (1)-(*)"), "40") << "brackets without a wildcard are those of the name";
  EXPECT_EQ(group("/" + Wildcards::plain("p") + "/best \\(1)-*"), "");
  std::size_t budget = 2;
  Wildcards(root + "/a/*").find(budget);
  EXPECT_EQ(budget, 0u) << "and no more entries are read";
}

class Checkpoints : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text = "weights") {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  std::unique_ptr<CheckpointWatch> watch(const std::string& pattern = "ckpt/step-*") {
    auto out = std::make_unique<CheckpointWatch>((folder_ / pattern).string(), folder_.path().string());
    EXPECT_EQ(look(*out, 0ms), Told{}) << "what is there at the first look is old";
    return out;
  }
  /// One look so much later.
  Told look(CheckpointWatch& watch, std::chrono::milliseconds later = 1s, std::optional<spec::ExitStatus> end = {}) {
    now_ += later;
    Told told;
    const auto found = watch.look({.now = now_, .wall_ms = 0, .end = end, .newest_step = newest_step_});
    for (const auto& report : found.reports) {
      const auto& saved = report.checkpoint.value();
      told.push_back(saved.path + " " + std::to_string(saved.step) + " " + std::to_string(*saved.bytes));
    }
    return told;
  }

  test::TemporaryFolder folder_;
  std::chrono::steady_clock::time_point now_{1h};
  std::optional<std::int64_t> newest_step_;
};

TEST_F(Checkpoints, AFolderIsOneWhenAllInItHasStayedTheSameForASecond) {
  const auto checkpoints = watch();
  fs::create_directories(folder_ / "ckpt/step-40");
  EXPECT_EQ(look(*checkpoints), Told{});
  EXPECT_EQ(look(*checkpoints), Told{}) << "it is empty yet";
  write("ckpt/step-40/model.pt", "12345");
  EXPECT_EQ(look(*checkpoints), Told{});
  write("ckpt/step-40/optimizer/state.pt", "67890");
  EXPECT_EQ(look(*checkpoints), Told{}) << "it has grown";
  EXPECT_EQ(look(*checkpoints, 500ms), Told{}) << "too soon";
  EXPECT_EQ(look(*checkpoints, 500ms), Told{"ckpt/step-40 40 10"});
  EXPECT_EQ(look(*checkpoints), Told{}) << "once";
}

TEST_F(Checkpoints, WhatWasThereIsOldUntilItChanges) {
  write("ckpt/step-10/model.pt");
  write("ckpt/step-20/model.pt", "half");
  const auto checkpoints = watch();
  write("ckpt/step-20/model.pt", "the whole of it");
  EXPECT_EQ(look(*checkpoints), Told{});
  EXPECT_EQ(look(*checkpoints), Told{"ckpt/step-20 20 15"});
}

TEST_F(Checkpoints, SeveralComeInTheOrderOfTheirSteps) {
  const auto checkpoints = watch();
  for (const auto* name : {"ckpt/step-100", "ckpt/step-20", "ckpt/step-3"}) write(name, "x");
  write("ckpt/step-4.tmp");
  look(*checkpoints);
  EXPECT_EQ(look(*checkpoints), (Told{"ckpt/step-3 3 1", "ckpt/step-20 20 1", "ckpt/step-100 100 1"}));
}

TEST_F(Checkpoints, ANameWithoutANumberHasTheNewestStepThatWasTold) {
  const auto checkpoints = watch("ckpt/last*");
  write("ckpt/last.pt", "1");
  look(*checkpoints);
  EXPECT_EQ(look(*checkpoints), Told{}) << "nobody knows its step";
  EXPECT_NE(checkpoints->take_complaint().find("has no number in its name"), std::string::npos);
  newest_step_ = 70;
  write("ckpt/last.pt", "22");
  look(*checkpoints);
  newest_step_ = 75;
  EXPECT_EQ(look(*checkpoints), Told{"ckpt/last.pt 70 2"}) << "a match that is written anew is a new checkpoint";
}

TEST_F(Checkpoints, AnEndInGoodOrderLeavesNoneHalfWritten) {
  for (const int code : {0, int{spec::kExitRequeue}}) {
    const auto checkpoints = watch();
    const auto name = "ckpt/step-5" + std::to_string(code);
    write(name, "x");
    const auto end = spec::ExitStatus{code, 0};
    EXPECT_EQ(look(*checkpoints, 1ms, end), Told{name + " 5" + std::to_string(code) + " 1"});
    EXPECT_EQ(look(*checkpoints, 1ms, end), Told{});
  }
}

TEST_F(Checkpoints, AnEndWithAnErrorMayHaveTornTheLast) {
  for (const auto end : {spec::ExitStatus{1, 0}, spec::ExitStatus{0, 9}}) {
    fs::remove_all(folder_ / "ckpt");
    const auto checkpoints = watch();
    write("ckpt/step-10", "whole");
    look(*checkpoints, 200ms);
    write("ckpt/step-20", "ha");
    EXPECT_EQ(look(*checkpoints, 200ms, end), Told{"ckpt/step-10 10 5"}) << "two looks have seen it as it is";
  }
}

/// A zip archive, as torch.save writes it, without or with its end.
std::string archive(bool whole) {
  return std::string("PK\3\4", 4) + std::string(60, 'w') +
         (whole ? std::string("PK\5\6", 4) + std::string(18, '\0') : "");
}

TEST_F(Checkpoints, ASaveThatWasCutOffIsNone) {
  const auto checkpoints = watch();
  write("ckpt/step-10/model.pt", archive(true));
  write("ckpt/step-20/model.pt", archive(false));
  look(*checkpoints);
  EXPECT_EQ(look(*checkpoints), Told{"ckpt/step-10 10 86"}) << "the other one stood still for a second, too";
  EXPECT_EQ(look(*checkpoints), Told{});
  write("ckpt/step-20/model.pt", archive(true));
  look(*checkpoints);
  EXPECT_EQ(look(*checkpoints), Told{"ckpt/step-20 20 86"}) << "it was still being written";
  write("ckpt/step-30/model.pt", archive(false));
  look(*checkpoints);
  const auto end = spec::ExitStatus{0, 9};
  EXPECT_EQ(look(*checkpoints, 1s, end), Told{});
  EXPECT_THAT(checkpoints->take_complaint(),
              testing::EndsWith("ckpt/step-30 was cut off, so it is no checkpoint: model.pt has no end"));
}

// The shape of a file does not change when another part of its save comes.
TEST_F(Checkpoints, APartIsOneWhenTheOtherPartsHaveComeToo) {
  const auto checkpoints = watch("ckpt/step-*");
  write("ckpt/step-10-model-00001-of-00002.pt", archive(true));
  look(*checkpoints);
  EXPECT_EQ(look(*checkpoints), Told{}) << "1 of 2 parts is there";
  write("ckpt/step-10-model-00002-of-00002.pt", archive(true));
  EXPECT_EQ(look(*checkpoints), Told{"ckpt/step-10-model-00001-of-00002.pt 10 86"});
  EXPECT_EQ(look(*checkpoints), Told{"ckpt/step-10-model-00002-of-00002.pt 10 86"});
}

TEST_F(Checkpoints, AGroupOfThePatternSaysTheStep) {
  const auto checkpoints = watch("ckpt/*-(*)-7b");
  write("ckpt/20260101-40-7b", "x");
  look(*checkpoints);
  EXPECT_EQ(look(*checkpoints), Told{"ckpt/20260101-40-7b 40 1"});
}

TEST_F(Checkpoints, ANameWithAnEpochAloneHasTheNewestStepThatWasTold) {
  const auto checkpoints = watch("ckpt/*.ckpt");
  write("ckpt/epoch=01-val_loss=0.80.ckpt", "x");
  look(*checkpoints);
  EXPECT_EQ(look(*checkpoints), Told{"ckpt/epoch=01-val_loss=0.80.ckpt 1 1"}) << "nobody tells steps";
  newest_step_ = 70;
  write("ckpt/epoch=02-val_loss=0.70.ckpt", "x");
  look(*checkpoints);
  EXPECT_EQ(look(*checkpoints), Told{"ckpt/epoch=02-val_loss=0.70.ckpt 70 1"});
}

/// Checkpoints of the form "<before><number><behind>" at the program's steps 100, 200, ... What is said of their names.
class Names : public Checkpoints {
 protected:
  std::string said(const std::function<std::string(int)>& name_of, bool ends = true) {
    const auto checkpoints = watch("ckpt/*");
    for (int i = 1; i <= 4; ++i) {
      write("ckpt/" + name_of(i), std::to_string(i));
      newest_step_ = 100 * i;
      look(*checkpoints);
      look(*checkpoints);
    }
    if (ends) look(*checkpoints, 1s, spec::ExitStatus{});
    return checkpoints->take_complaint();
  }
};

TEST_F(Names, ThatFitWhatTheProgramReportsNeedNoWord) {
  EXPECT_EQ(said([](int i) { return "step-" + std::to_string(100 * i); }), "");
  EXPECT_EQ(said([](int i) { return std::to_string(100 * i) + ".bin"; }), "");
  EXPECT_EQ(said([](int i) { return "e" + std::to_string(i) + "-last.bin"; }), "") << "no number";
}

TEST_F(Names, WhoseNumberIsFarBeyondTheProgramsStepsAreTold) {
  const auto words = said([](int i) { return std::to_string(90'000 + i) + "-a.bin"; }, false);
  EXPECT_THAT(words,
              testing::HasSubstr("ckpt/90001-a.bin gives step 90001, and the program has reported step 300; if "
                                 "another number of the name is its step, put the wildcard of that number into"));
}

TEST_F(Names, WhoseNumberDoesNotRiseThoughTheProgramGoesOnAreTold) {
  const auto words = said([](int i) { return std::to_string(100 * i) + "-lr-5.bin"; });
  EXPECT_THAT(words,
              testing::HasSubstr("ckpt/200-lr-5.bin gives step 5 as its last number, and the program has reported "
                                 "step 200; if"));
}

TEST_F(Names, WhoseNumbersAreThoseOfEpochsAreTold) {
  const auto words = said([](int i) { return "model_" + std::to_string(16 + i) + ".pt"; }, false);
  EXPECT_THAT(words,
              testing::StartsWith("report.checkpoints: the names do not fit the steps that the program reports: "));
  EXPECT_THAT(words, testing::HasSubstr("ckpt/model_19.pt gives step 19, and the program has reported step 300; if"));
  EXPECT_NE(said([](int i) { return "checkpoint-" + std::to_string(i); }), "");
}

TEST_F(Names, OfAProgramThatSavesMuchQuickerThanItIsLookedAtAreNotSuspected) {
  const auto checkpoints = watch();
  // Each look sees some saves more, and the program is up to a look ahead of the newest.
  for (int look_number = 1; look_number <= 6; ++look_number) {
    for (int i = 0; i < 3; ++i) write("ckpt/step-" + std::to_string(1'000 * (3 * look_number + i)), "x");
    newest_step_ = 1'000 * (3 * look_number + 5);
    look(*checkpoints);
    look(*checkpoints);
  }
  look(*checkpoints, 1s, spec::ExitStatus{});
  EXPECT_EQ(checkpoints->take_complaint(), "");
}

TEST_F(Names, OfAProgramThatCeasesToSaveAreNotSuspected) {
  const auto checkpoints = watch();
  for (const int step : {100, 200, 300}) {
    write("ckpt/step-" + std::to_string(step), "x");
    newest_step_ = step == 300 ? 5'000 : step;
    look(*checkpoints);
    look(*checkpoints);
  }
  look(*checkpoints, 1s, spec::ExitStatus{});
  EXPECT_EQ(checkpoints->take_complaint(), "");
}

TEST_F(Names, OfAProgramThatLogsSeldomAreNotSuspected) {
  const auto checkpoints = watch();
  newest_step_ = 1;
  write("ckpt/step-500", "x");
  look(*checkpoints);
  look(*checkpoints);
  newest_step_ = 1'000;
  look(*checkpoints, 1s, spec::ExitStatus{});
  look(*checkpoints, 1s, spec::ExitStatus{});
  EXPECT_EQ(checkpoints->take_complaint(), "");
}

TEST_F(Checkpoints, ACrowdOfFilesIsLookedAtInPartAndTheNewestFirst) {
  fs::create_directories(folder_ / "ckpt");
  for (int i = 0; i < 100; ++i) {
    for (int file = 0; file < 100; ++file) write("ckpt/step-" + std::to_string(i) + "/" + std::to_string(file), "x");
  }
  const auto checkpoints = watch();
  EXPECT_NE(checkpoints->take_complaint().find("over 5000 files"), std::string::npos);
  write("ckpt/step-1000", "x");
  look(*checkpoints, 1h);
  EXPECT_EQ(look(*checkpoints, 1h), Told{"ckpt/step-1000 1000 1"});
}

}  // namespace
}  // namespace agent::watch
