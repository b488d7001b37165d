// Goal: people see which job has which GPU of musterd's own machine, why another waits, and what a job is not given.
// Method: the controller on a bench, with a machine of two GPUs.
#include <gmock/gmock.h>

#include "tests/controller/service/bench.h"

namespace service::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class MachineOfMusterd : public ::testing::Test {
 protected:
  MachineOfMusterd() {
    bench.machine->own.name = "box";
    bench.machine->own.gpus = {{0, "GPU-a"}, {3, "GPU-b"}};
    bench.restart();
  }
  core::JobId submit(std::uint32_t gpus, std::uint32_t ranks = 1) {
    auto request = command_request("job-" + std::to_string(++jobs_), ranks);
    request.mutable_spec()->mutable_resources()->set_gpus_per_rank(gpus);
    return bench.submit(request);
  }

  Bench bench;

 private:
  int jobs_ = 0;
};

TEST_F(MachineOfMusterd, AJobPageAndAListSayWhichGpusAJobHas) {
  const auto job = submit(1, 2);
  const auto view = bench.job(job);
  EXPECT_THAT(view.attempts(0).gpus(), ElementsAre("GPU-a", "GPU-b"));
  EXPECT_EQ(view.ranks(0).gpus(), "0");
  EXPECT_EQ(view.ranks(1).gpus(), "3") << "its number on the machine";
  EXPECT_THAT(bench.controller().list({}).jobs(0).attempts(0).gpus(), ElementsAre("GPU-a", "GPU-b"));
  bench.executor().end_all({job, 1}, {0, 0});
  bench.tick();
  EXPECT_THAT(bench.job(job).attempts(0).gpus(), IsEmpty()) << "it has them no more";
  EXPECT_EQ(bench.job(job).ranks(0).gpus(), "");
}

TEST_F(MachineOfMusterd, WhyAndTheMachineTellWhoHasThemOverARestart) {
  const auto one = submit(1), other = submit(1), third = submit(2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(bench.why(third).reason(), "waits for 2 GPUs: job 1 and job 2 have them");
    EXPECT_THAT(bench.why(third).action(), HasSubstr("muster nodes"));
    const auto nodes = bench.controller().list_nodes();
    ASSERT_TRUE(nodes.ok());
    const auto& machine = nodes.value().machine();
    EXPECT_EQ(machine.name(), "box");
    EXPECT_EQ(machine.gpus(0).job_id(), one);
    EXPECT_EQ(machine.gpus(1).job_id(), other);
    EXPECT_THAT(machine.waiting(), ElementsAre(third));
    bench.restart();
    bench.tick();
  }
  for (const auto job : {one, other}) bench.executor().end_all({job, 1}, {0, 0});
  bench.tick();
  EXPECT_EQ(bench.state(third), "running");
  EXPECT_THAT(bench.controller().machine().waiting(), IsEmpty());
}

TEST_F(MachineOfMusterd, ARequeuedAttemptHasItsGpusAnewAndComesBehindThoseWhoWait) {
  const auto one = submit(2), other = submit(2);
  bench.controller().requeue(one, "ben");
  bench.tick();
  EXPECT_EQ(bench.state(other), "pending") << "its ranks are still there";
  bench.executor().end_all({one, 1}, {0, 15});
  bench.pass(std::chrono::seconds(2));
  EXPECT_EQ(bench.state(other), "running");
  EXPECT_EQ(bench.why(one).reason(), "waits for 2 GPUs: job 2 has them");
  bench.executor().end_all({other, 1}, {0, 0});
  bench.pass(std::chrono::seconds(2));
  EXPECT_THAT(bench.attempt(one, 2).gpus(), ElementsAre("GPU-a", "GPU-b"));
}

// The launch was under way when the job was cancelled, and musterd died before it had the answer.
TEST_F(MachineOfMusterd, WhatACancelledJobLeftBehindKeepsItsGpuUntilItIsGone) {
  bool is_there = true;
  bench.machine->on_is_there = [&](const core::AttemptKey&) { return is_there; };
  bench.machine->takes_silently = true;
  bench.machine->launch_later = "no answer";
  const auto one = submit(2);
  bench.controller().cancel(one, "ben");
  bench.machine->takes_silently = false;
  bench.machine->launch_later.clear();
  bench.restart();
  const auto other = submit(1);
  bench.pass(std::chrono::seconds(5));
  EXPECT_EQ(bench.machine->stop_count({one, 1}) > 0, true);
  EXPECT_EQ(bench.state(other), "pending");
  EXPECT_EQ(bench.why(other).reason(), "waits for 1 GPU: job 1 has them");
  bench.restart();
  bench.pass(std::chrono::seconds(5));
  EXPECT_EQ(bench.state(other), "pending") << "after a crash, too";
  is_there = false;
  bench.pass(std::chrono::seconds(3));
  EXPECT_EQ(bench.state(other), "running");
  EXPECT_TRUE(bench.store().pending_actions().empty());
}

TEST_F(MachineOfMusterd, AJobWaitsWhereMusterdWasStartedWithFewerGpus) {
  bench.machine->own.gpus.clear();
  bench.restart();
  const auto one = submit(1);
  EXPECT_EQ(bench.state(one), "pending") << "nobody lists a GPU";
  EXPECT_THAT(bench.why(one).reason(), HasSubstr("asks for 1 GPU, and this machine has 0"));
}

// The driver was silent when musterd was started.
TEST_F(MachineOfMusterd, AJobThatWaitsForUnknownGpusStartsWhenTheyAreFound) {
  const auto had = submit(1);
  const auto all = bench.machine->own;
  auto& own = bench.machine->own;
  own.gpus.clear();
  own.gpus_from = "no driver lists them";
  own.hides_gpus = own.is_unsure = true;
  bench.restart();
  const auto one = submit(1), two = submit(1);
  EXPECT_EQ(bench.state(one), "pending");
  EXPECT_EQ(bench.why(one).reason(), "waits for 1 GPU: no driver lists them");
  const auto none = bench.why(submit(0));
  EXPECT_THAT(none.notes(0), HasSubstr("it sees none of the GPUs of this machine"));
  bench.executor().learn(all);
  bench.tick();
  EXPECT_THAT(bench.job(one).attempts(0).gpus(), ElementsAre("GPU-b")) << "the first job has the other one";
  EXPECT_EQ(bench.why(two).reason(),
            "waits for 1 GPU: job " + std::to_string(had) + " and job " + std::to_string(one) + " have them");
}

TEST_F(MachineOfMusterd, WhyNodesAndTheJobTellOfGpusThatAreHeldBack) {
  const auto one = submit(1);
  bench.machine->own.gpus = {{0, "0", "", {0}}, {1, "1", "", {1}}};
  bench.restart();
  const auto two = submit(1);
  EXPECT_THAT(bench.why(two).reason(), HasSubstr("nobody can tell which GPU job 1 has: it was given GPU-a"));
  const auto machine = bench.controller().machine();
  EXPECT_TRUE(machine.gpus(0).held_back());
  EXPECT_TRUE(machine.gpus(1).held_back());
  bench.executor().end_all({one, 1}, {0, 0});
  bench.tick();
  EXPECT_THAT(bench.job(two).attempts(0).gpus(), ElementsAre("0"));
}

TEST_F(MachineOfMusterd, AJobThatIsGivenNoGpuIsTold) {
  const auto notes = [&](core::JobId job) {
    const auto why = bench.why(job);
    return std::vector<std::string>(why.notes().begin(), why.notes().end());
  };
  EXPECT_THAT(notes(submit(0)), ElementsAre(HasSubstr("It asks for no GPU, so it sees none of the 2 GPUs")));
  EXPECT_THAT(notes(submit(1)), IsEmpty());
  auto request = command_request("chooses");
  (*request.mutable_spec()->mutable_env())["CUDA_VISIBLE_DEVICES"] = "1";
  request.mutable_spec()->mutable_resources()->set_gpus_per_rank(1);
  const auto chooses = bench.submit(request);
  EXPECT_EQ(bench.state(chooses), "running");
  EXPECT_THAT(bench.job(chooses).attempts(0).gpus(), IsEmpty());
  EXPECT_THAT(notes(chooses), ElementsAre(HasSubstr("chooses GPUs, so muster gives it none")));
}

}  // namespace
}  // namespace service::testing
