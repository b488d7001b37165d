// Goal: GPUs and cores are given in turn, each to one attempt, and the reason to wait names who has them.
// Method: the ledger alone, with jobs that are written down here.
#include "controller/admission/ledger.h"

#include <gmock/gmock.h>

#include "controller/executors/executor.h"

namespace admission::testing {
namespace {

using executors::MachineNeed;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

executors::OwnMachine machine_of(std::vector<std::string> gpus, std::uint32_t cores = 0) {
  executors::OwnMachine machine;
  for (auto& gpu : gpus) machine.gpus.push_back({static_cast<std::uint32_t>(machine.gpus.size()), std::move(gpu)});
  machine.cores = cores;
  return machine;
}

core::Job job_of(core::JobId id) {
  core::Job job;
  job.id = id;
  return job;
}

/// The job of job_of() with an attempt that runs.
core::Job running(core::JobId id, const core::MachineShare& share) {
  auto job = job_of(id);
  auto& attempt = job.attempts.emplace_back();
  attempt.number = 1;
  attempt.state = core::AttemptState::kRunning;
  attempt.share = share;
  job.state = core::JobState::kRunning;
  return job;
}

class MachineLedgerTest : public ::testing::Test {
 protected:
  /// The share that the job gets; if it gets none, it lines up. Places are numbers of jobs.
  std::optional<core::MachineShare> enter(core::JobId id, const MachineNeed& need) {
    const auto place = static_cast<MachineLedger::Place>(id);
    auto share = ledger.choose(need, place);
    share ? ledger.enter(job_of(id), *share) : ledger.line_up(id, need, place);
    return share;
  }
  std::string why(core::JobId id, const MachineNeed& need) {
    return ledger.why(need, static_cast<MachineLedger::Place>(id)).why;
  }
  void end(core::JobId id) {
    ledger.settle(id);
    auto job = job_of(id);
    job.state = core::JobState::kSucceeded;
    ledger.follow(job);
  }

  MachineLedger ledger{machine_of({"GPU-a", "GPU-b", "GPU-c", "GPU-d"}, 8)};
};

TEST_F(MachineLedgerTest, EachGpuGoesToOneJobUntilItHasEnded) {
  EXPECT_THAT(enter(1, {.gpus = 2})->gpus, ElementsAre("GPU-a", "GPU-b"));
  EXPECT_THAT(enter(2, {.gpus = 1})->gpus, ElementsAre("GPU-c"));
  EXPECT_FALSE(enter(3, {.gpus = 2}));
  ledger.follow(running(1, {.gpus = {"GPU-a", "GPU-b"}}));
  ledger.settle(1);
  EXPECT_FALSE(enter(3, {.gpus = 2})) << "the attempt has them now";
  end(1);
  EXPECT_THAT(enter(3, {.gpus = 2})->gpus, ElementsAre("GPU-a", "GPU-b"));
}

TEST_F(MachineLedgerTest, AfterARestartHistoryTellsWhoHasWhat) {
  ledger.follow(running(7, {.gpus = {"GPU-b", "GPU-d"}, .cores = 6}));
  EXPECT_THAT(enter(8, {.gpus = 2, .cores = 2})->gpus, ElementsAre("GPU-a", "GPU-c"));
  EXPECT_FALSE(enter(9, {.cores = 1}));
}

TEST_F(MachineLedgerTest, AJobThatWaitsForManyIsNotStarvedBySmallOnes) {
  enter(1, {.gpus = 1});
  enter(2, {.gpus = 1});
  EXPECT_FALSE(enter(3, {.gpus = 4}));
  EXPECT_FALSE(enter(4, {.gpus = 1})) << "two are free, and set aside for job 3";
  EXPECT_EQ(why(4, {.gpus = 1}), "waits for 1 GPU: job 3 has waited longer, for 4");
  EXPECT_THAT(ledger.why({.gpus = 1}, 4).action, HasSubstr("muster hold 3"));
  end(1);
  EXPECT_FALSE(enter(4, {.gpus = 1}));
  end(2);
  EXPECT_FALSE(enter(4, {.gpus = 1})) << "all are free, and it is the turn of job 3";
  EXPECT_EQ(enter(3, {.gpus = 4})->gpus.size(), 4U);
  end(3);
  EXPECT_TRUE(enter(4, {.gpus = 1}));
}

TEST_F(MachineLedgerTest, WhatAWaitingJobDoesNotNeedGoesToLaterOnes) {
  enter(1, {.cores = 7});
  EXPECT_FALSE(enter(2, {.gpus = 1, .cores = 2})) << "cores are missing";
  EXPECT_THAT(enter(3, {.gpus = 3})->gpus, ElementsAre("GPU-b", "GPU-c", "GPU-d")) << "GPU-a is set aside";
  EXPECT_FALSE(enter(4, {.gpus = 1}));
  EXPECT_FALSE(enter(5, {.cores = 1}));
  end(1);
  EXPECT_THAT(enter(2, {.gpus = 1, .cores = 2})->gpus, ElementsAre("GPU-a"));
  EXPECT_TRUE(enter(5, {.cores = 6}));
}

TEST_F(MachineLedgerTest, ThoseWhoWaitForSomethingElseKeepNobodyWaiting) {
  enter(1, {.gpus = 3});
  EXPECT_FALSE(enter(2, {.gpus = 4}));
  auto held = job_of(2);
  held.held = true;
  ledger.follow(held);
  EXPECT_TRUE(enter(3, {.gpus = 1}));
}

TEST_F(MachineLedgerTest, TheReasonNamesWhoHasThem) {
  enter(1, {.gpus = 1});
  enter(4, {.gpus = 3});
  EXPECT_EQ(why(5, {.gpus = 2}), "waits for 2 GPUs: job 1 and job 4 have them");
  EXPECT_THAT(ledger.why({.gpus = 2}, 5).action, HasSubstr("muster nodes"));
  end(1);
  EXPECT_EQ(why(5, {.gpus = 2}), "waits for 2 GPUs, of which 1 is free: job 4 has the others");
  enter(6, {.cores = 8});
  EXPECT_EQ(why(7, {.cores = 1}), "waits for 1 core: job 6 has them");
}

TEST_F(MachineLedgerTest, OfManyWhoHaveThemAFewAreNamed) {
  for (core::JobId id = 1; id <= 8; ++id) enter(id, {.cores = 1});
  EXPECT_EQ(why(9, {.cores = 1}), "waits for 1 core: job 1, job 2, job 3 and 5 more have them");
}

// musterd was started again with fewer GPUs.
TEST_F(MachineLedgerTest, WhatCanNeverBeKeepsNobodyWaiting) {
  EXPECT_FALSE(enter(1, {.gpus = 5}));
  EXPECT_EQ(why(1, {.gpus = 5}), "can't start here now: it asks for 5 GPUs, and this machine has 4");
  EXPECT_TRUE(enter(2, {.gpus = 4}));
  ledger.follow(running(3, {.gpus = {"GPU-of-before"}}));
  EXPECT_EQ(ledger.view().holders_size(), 2);
}

TEST_F(MachineLedgerTest, AnAttemptThatWasGivenNothingKeepsTheFirstOnes) {
  auto job = running(1, {});
  job.attempts[0].share.reset();
  ledger.follow(job);
  ledger.keep_first(job, {.gpus = 2});
  ledger.follow(job);
  EXPECT_THAT(enter(2, {.gpus = 2})->gpus, ElementsAre("GPU-c", "GPU-d"));
  job.attempts[0].state = core::AttemptState::kEnded;
  ledger.follow(job);
  EXPECT_THAT(enter(3, {.gpus = 2})->gpus, ElementsAre("GPU-a", "GPU-b"));
}

// musterd may be started with numbers once, and with UUIDs another time.
executors::OwnGpu listed_by_driver(std::uint32_t number, const std::string& id) {
  return {number, id, "", {number, id}};
}

TEST(GpuNames, MeanTheSameByUuidElseByNumber) {
  using executors::Overlap;
  const core::GpuIdentity unknown, first{0, "GPU-aaaa"};
  EXPECT_EQ(executors::overlap("0", unknown, "0", unknown), Overlap::kSame);
  EXPECT_EQ(executors::overlap("0", unknown, "GPU-aaaa", first), Overlap::kSame);
  EXPECT_EQ(executors::overlap("1", unknown, "GPU-aaaa", first), Overlap::kNone);
  EXPECT_EQ(executors::overlap("0", unknown, "GPU-aaaa", unknown), Overlap::kUnknown);
  EXPECT_EQ(executors::overlap("GPU-aa", unknown, "GPU-aaaa", first), Overlap::kSame) << "abbreviated";
  EXPECT_EQ(executors::overlap("GPU-bbbb", {0}, "GPU-aaaa", first), Overlap::kNone) << "numbers were given anew";
  EXPECT_EQ(executors::overlap("MIG-1", first, "0", unknown), Overlap::kSame) << "a part of it";
  EXPECT_EQ(executors::overlap("MIG-1", first, "MIG-2", first), Overlap::kNone) << "other parts";
  EXPECT_EQ(executors::overlap("MIG-1", unknown, "GPU-aaaa", first), Overlap::kUnknown);
}

TEST(MachineLedgerOfOtherNames, AGpuThatWasGivenByNumberIsNotGivenByUuid) {
  executors::OwnMachine machine;
  machine.gpus = {listed_by_driver(0, "GPU-a"), listed_by_driver(1, "GPU-b")};
  MachineLedger ledger(machine);
  ledger.follow(running(1, {.gpus = {"0"}}));
  EXPECT_THAT(ledger.choose({.gpus = 1}, 2)->gpus, ElementsAre("GPU-b"));
  EXPECT_FALSE(ledger.choose({.gpus = 2}, 2));
  EXPECT_TRUE(ledger.in_doubt().empty());
  EXPECT_EQ(ledger.why({.gpus = 2}, 2).why, "waits for 2 GPUs, of which 1 is free: job 1 has the others");
}

TEST(MachineLedgerOfOtherNames, AShareTellsWhatWasKnownWhenItWasGiven) {
  executors::OwnMachine machine;
  machine.gpus = {listed_by_driver(0, "GPU-a"), listed_by_driver(1, "GPU-b")};
  const auto share = *MachineLedger(machine).choose({.gpus = 1}, 1);
  EXPECT_THAT(share.known, ElementsAre(core::GpuIdentity{0, "GPU-a"}));
  MachineLedger without_driver(machine_of({"0", "1"}));
  without_driver.follow(running(1, share));
  EXPECT_THAT(without_driver.choose({.gpus = 1}, 2)->gpus, ElementsAre("1"));
}

TEST(MachineLedgerOfOtherNames, WhatMayBeTakenIsHeldBackAndTold) {
  MachineLedger ledger(machine_of({"GPU-a", "GPU-b"}));
  ledger.follow(running(1, {.gpus = {"0"}}));
  EXPECT_FALSE(ledger.choose({.gpus = 1}, 2));
  const auto wait = ledger.why({.gpus = 1}, 2);
  EXPECT_EQ(wait.why,
            "waits for 1 GPU: nobody can tell which GPU job 1 has: it was given 0, and now musterd knows GPUs by other "
            "names, so all that may be its own are held back");
  EXPECT_THAT(wait.action, HasSubstr("--local-gpus 0"));
  const auto view = ledger.view();
  EXPECT_EQ(view.gpus(1).job_id(), 1);
  EXPECT_TRUE(view.gpus(1).held_back());
  auto over = job_of(1);
  over.state = core::JobState::kSucceeded;
  ledger.follow(over);
  EXPECT_TRUE(ledger.choose({.gpus = 2}, 2));
  EXPECT_TRUE(ledger.in_doubt().empty());
}

TEST(MachineLedgerOfOtherNames, GpusThatAreFoundLaterAreGivenFromThenOn) {
  executors::OwnMachine machine{.gpus_from = "no driver lists them", .hides_gpus = true, .is_unsure = true};
  MachineLedger ledger(machine);
  EXPECT_FALSE(ledger.choose({.gpus = 1}, 1));
  EXPECT_EQ(ledger.why({.gpus = 1}, 1).why, "waits for 1 GPU: no driver lists them");
  EXPECT_TRUE(executors::unfit_for(machine, {.ranks = 1, .gpus_of_rank = 1}).empty()) << "nobody knows how many";
  ledger.follow(running(7, {.gpus = {"GPU-b"}}));
  ledger.change(machine_of({"GPU-a", "GPU-b"}));
  EXPECT_THAT(ledger.choose({.gpus = 1}, 1)->gpus, ElementsAre("GPU-a"));
}

TEST_F(MachineLedgerTest, TheViewShowsWhoHasWhatAndWhoIsNext) {
  enter(1, {.gpus = 3, .cores = 2});
  enter(2, {.gpus = 2});
  enter(3, {.gpus = 1});
  const auto view = ledger.view();
  EXPECT_EQ(view.gpus(2).job_id(), 1);
  EXPECT_EQ(view.gpus(2).attempt(), 1U);
  EXPECT_EQ(view.gpus(3).job_id(), 0);
  EXPECT_EQ(view.cores_taken(), 2U);
  ASSERT_EQ(view.holders_size(), 1);
  EXPECT_THAT(view.holders(0).gpus(), ElementsAre("GPU-a", "GPU-b", "GPU-c"));
  EXPECT_THAT(view.waiting(), ElementsAre(2, 3));
}

// A process can use one part of a GPU at most.
TEST(MachineLedgerOfParts, ARankThatWantsSeveralGetsWholeGpus) {
  MachineLedger ledger(machine_of({"MIG-1", "GPU-b", "MIG-2", "GPU-d"}));
  EXPECT_THAT(ledger.choose({.gpus = 2, .whole_gpus = true}, 1)->gpus, ElementsAre("GPU-b", "GPU-d"));
  EXPECT_THAT(ledger.choose({.gpus = 3}, 1)->gpus, ElementsAre("MIG-1", "GPU-b", "MIG-2"));
  EXPECT_THAT(ledger.why({.gpus = 4, .whole_gpus = true}, 1).why, HasSubstr("this machine has 2"));
}

std::vector<std::string> refusals(const executors::OwnMachine& machine, const executors::MachineWish& wish) {
  std::vector<std::string> all;
  for (const auto& unfit : executors::unfit_for(machine, wish)) {
    all.push_back(unfit.field + " " + unfit.value + ": " + unfit.wanted + "; " + unfit.remedy);
  }
  return all;
}

TEST(UnfitForTheMachine, SaysWhatIsAskedWhatIsThereAndWhatToDo) {
  auto machine = machine_of({"GPU-a", "GPU-b"}, 4);
  EXPECT_THAT(refusals(machine, {.ranks = 2, .cpus_of_rank = 2, .gpus_of_rank = 1}), ElementsAre());
  EXPECT_THAT(
      refusals(machine, {.ranks = 3, .gpus_of_rank = 1}),
      ElementsAre("resources.gpus_per_rank 1: want fewer: it asks for 3 GPUs with its 3 ranks, and this machine "
                  "has 2; ask for fewer GPUs or ranks, or run it on Slurm"));
  EXPECT_THAT(
      refusals(machine, {.ranks = 1, .cpus_of_rank = 8}),
      ElementsAre("resources.cpus_per_rank 8: want fewer: it asks for 8 cores with its 1 rank, and this machine "
                  "has 4; ask for fewer, or leave the key out: the job's cores are not counted then; or "
                  "start musterd with --local-cores off"));
  machine.gpus_from = "--local-gpus";
  EXPECT_THAT(refusals(machine, {.ranks = 3, .gpus_of_rank = 1})[0], HasSubstr("this machine has 2 (--local-gpus)"));
  EXPECT_THAT(refusals(machine, {.ranks = 3, .gpus_of_rank = 1, .chooses_gpus = true}), ElementsAre());
  machine.cores = 0;
  EXPECT_THAT(refusals(machine, {.ranks = 9, .cpus_of_rank = 8}), ElementsAre()) << "cores are not counted";
  EXPECT_THAT(refusals({}, {.ranks = 1, .gpus_of_rank = 1}),
              ElementsAre("resources.gpus_per_rank 1: want 0: this machine has no GPU; ask for none, or run it on "
                          "Slurm"));
  EXPECT_THAT(refusals(machine_of({"MIG-1", "MIG-2"}), {.ranks = 1, .gpus_of_rank = 2})[0],
              HasSubstr("2 parts of GPUs (MIG), of which a rank can use one"));
}

}  // namespace
}  // namespace admission::testing
