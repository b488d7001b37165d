// Goal: an agent of one rank, as on Slurm, tells the controller what becomes of its rank, and does what the controller
// asks. Method: the agent itself in this process, a link that the test holds the other end of, shell scripts as ranks.
// muster_agent_test.cpp has the whole program.
#include "agent/program/agent.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <map>
#include <mutex>

#include "tests/temporary_folder.h"

namespace agent::program {
namespace {

using namespace std::chrono_literals;
using muster::v1::TaskRequest;
using muster::v1::TaskResponse;

/// The controller's end.
struct Controller {
  std::vector<TaskRequest> told;
  std::optional<TaskRequest> later;
  OnDirective on_directive;
  std::function<void(const TaskRequest&)> on_tell = [](const TaskRequest&) {};
  std::chrono::milliseconds unheard{0};
  bool answers = true;
  std::string meeting_point;
  std::vector<std::string> offers;
  // The thread of the reports asks for these two.
  std::atomic<bool> is_held = false, exit_is_told = false;
  // By the number that was asked for; another thread of the task gives them.
  std::mutex stacks_mutex;
  std::map<std::uint64_t, std::string> stacks;

  void take_stack(std::uint64_t number, const std::string& text) {
    const std::lock_guard lock(stacks_mutex);
    stacks[number] = text;
  }

  void ask(muster::v1::Directive directive, const std::string& why = "") const {
    TaskResponse response;
    response.set_directive(directive);
    response.set_stop_why(why);
    response.set_stop_grace_ms(30'000);
    on_directive(response);
  }
};

class Link : public ControllerLink {
 public:
  explicit Link(Controller& controller) : controller_(controller) {}
  void tell(const TaskRequest& request) override {
    controller_.told.push_back(request);
    controller_.exit_is_told = request.state() == muster::v1::PROCESS_EXITED;
    controller_.on_tell(request);
  }
  void tell_later(const TaskRequest& request) override { controller_.later = request; }
  void hold(std::uint32_t) override { controller_.is_held = true; }
  bool flush(std::chrono::milliseconds) override { return controller_.answers; }
  std::chrono::milliseconds unheard_for() const override { return controller_.unheard; }
  std::string meet(const std::string& mine, rank::MeetingPatience) override {
    controller_.offers.push_back(mine);
    return controller_.meeting_point;
  }
  bool give_stack(std::uint64_t number, std::uint32_t, const std::string& text) override {
    controller_.take_stack(number, text);
    return true;
  }

 private:
  Controller& controller_;
};

class AgentOfOne : public testing::Test {
 protected:
  AgentOfOne() {
    std::filesystem::create_directories(folder_ / "logs");
    setup_.launch.env = {{"MUSTER_CONTROLLER", "127.0.0.1:7077"}, {"MUSTER_JOB_ID", "7"}, {"MUSTER_ATTEMPT", "1"}};
    setup_.launch.working_folder = folder_.path();
    setup_.launch.log_folder = folder_ / "logs";
    setup_.launch.is_command = true;
    setup_.attempt_folder = folder_.path();
    setup_.oom_counter = folder_ / "no-counter";
    setup_.inherited = {{"PATH", "/usr/bin:/bin"}, {"SLURM_JOB_ID", "1234"}};
    setup_.connect = [this](const rank::ControllerPlace&, const std::string&, const TaskRequest& first,
                            OnDirective heard) {
      controller_.told.push_back(first);
      controller_.on_directive = std::move(heard);
      if (asked_first_) controller_.ask(*asked_first_);
      return std::make_unique<Link>(controller_);
    };
  }
  int run(const std::string& script) {
    setup_.launch.argv = {"/bin/sh", "-c", script};
    return Agent(setup_).run();
  }
  protocol::Status status() const { return protocol::parse_status(test::read_file(folder_ / "status.jsonl")); }
  protocol::Exited end() const { return status().exits.at(0); }
  std::string log() const { return test::read_file(folder_ / "logs" / "rank-0.log"); }
  std::vector<muster::v1::ProcessState> states() const {
    std::vector<muster::v1::ProcessState> all;
    for (const auto& request : controller_.told) all.push_back(request.state());
    return all;
  }
  /// Once the program has made this file.
  void ask_when_ready(muster::v1::Directive directive, const std::string& why) {
    controller_.on_tell = [this, directive, why](const TaskRequest& request) {
      if (request.state() != muster::v1::PROCESS_RUNNING) return;
      std::ifstream(folder_ / "gate").get();  // a pipe: waits for the program
      controller_.ask(directive, why);
    };
    ASSERT_EQ(::mkfifo((folder_ / "gate").c_str(), 0600), 0);
  }

  test::TemporaryFolder folder_;
  Controller controller_;
  std::optional<muster::v1::Directive> asked_first_;
  AgentSetup setup_;
};

TEST_F(AgentOfOne, TellsStartAndEndAndWritesTheSame) {
  EXPECT_EQ(run("echo 'ValueError: bad batch' >&2; exit 7"), 7);
  EXPECT_THAT(states(), testing::ElementsAre(muster::v1::PROCESS_STARTING, muster::v1::PROCESS_RUNNING,
                                             muster::v1::PROCESS_EXITED));
  const auto& last = controller_.told.back();
  EXPECT_EQ(last.key().job_id(), 7);
  EXPECT_EQ(last.slurm_job(), "1234");
  EXPECT_EQ(last.exit_code(), 7);
  EXPECT_EQ(last.error(), "ValueError: bad batch");
  EXPECT_EQ(end().exit, (spec::ExitStatus{7, 0}));
  EXPECT_EQ(end().error, last.error());
  EXPECT_EQ(status().started->ranks.at(0).pid, last.pid());
  EXPECT_TRUE(status().running && status().ended);
}

// A musterd that is no more may have started it, and its successor has ended the attempt since.
TEST_F(AgentOfOne, OfAllRanksThatHearsOfAStopBeforeTheStartRunsNothing) {
  auto& local = setup_.launch.local.emplace();
  local.program = "/bin/sh";
  local.ranks = 2;
  asked_first_ = muster::v1::DIRECTIVE_STOP;
  EXPECT_THROW(run("echo ran > ran"), std::runtime_error);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "ran"));
  EXPECT_FALSE(status().started) << "the attempt can be told to have started nothing";
}

// Goal: the controller learns what the rank uses, without a message more.
TEST_F(AgentOfOne, TellsWhatTheRankUsesWithTheNextRequest) {
  setup_.use.first_pause = setup_.use.longest_pause = 20ms;
  EXPECT_EQ(run("i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; sleep 0.6"), 0);
  ASSERT_TRUE(controller_.later);
  const auto& use = controller_.later->use();
  EXPECT_EQ(controller_.later->state(), muster::v1::PROCESS_RUNNING);
  EXPECT_GT(use.at_ms(), 0);
  EXPECT_TRUE(use.has_cores());
  EXPECT_GE(use.processes(), 1U);
  EXPECT_GT(use.memory_bytes(), 100'000);
  EXPECT_GE(use.memory_peak_bytes(), use.memory_bytes());
  EXPECT_FALSE(use.has_gpu_percent());
  EXPECT_EQ(controller_.told.back().use().memory_peak_bytes(), use.memory_peak_bytes()) << "its end says it, too";
  EXPECT_THAT(states(), testing::ElementsAre(muster::v1::PROCESS_STARTING, muster::v1::PROCESS_RUNNING,
                                             muster::v1::PROCESS_EXITED));
}

/// Notes what was told of a rank, and what the controller knew of its process then.
class ReportsNoted : public rank::Reporter {
 public:
  ReportsNoted(std::vector<std::string>& lines, const Controller& controller)
      : lines_(lines), controller_(controller) {}
  void section(rank::Section) override {}
  void declare(std::vector<spec::Series>) override {}
  void step(const rank::StepReport& report) override { note("step " + std::to_string(report.step)); }
  void resumed_from(std::int64_t) override {}
  void checkpoint_saved(std::int64_t step, std::int64_t, double) override { note("saved " + std::to_string(step)); }
  rank::StopKind stop_requested() const override { return rank::StopKind::kNone; }
  bool assigns_rendezvous() const override { return false; }
  rank::Endpoint rendezvous(std::optional<rank::Endpoint>) override { return {}; }
  void leaving(int exit_code, std::string_view) override { note("leaving " + std::to_string(exit_code)); }

 private:
  void note(const std::string& what) {
    lines_.push_back(what + (controller_.is_held ? ", held" : "") +
                     (controller_.exit_is_told ? ", after the exit" : ""));
  }
  std::vector<std::string>& lines_;
  const Controller& controller_;
};

TEST_F(AgentOfOne, TellsTheLastReportsBeforeTheEndAndNothingElseMeanwhile) {
  std::vector<std::string> lines;
  setup_.report = [&](const spec::Environment& rank, pid_t) -> report::Connect {
    EXPECT_EQ(rank.at("MUSTER_REPORT"), (folder_ / "logs" / "rank-0.report.jsonl").native());
    return [&] { return std::make_unique<ReportsNoted>(lines, controller_); };
  };
  EXPECT_EQ(run("echo '{\"step\":1}' >> $MUSTER_REPORT; kill -KILL $$"), 128 + SIGKILL);
  ASSERT_THAT(lines, testing::SizeIs(2));
  EXPECT_THAT(lines[0], testing::AnyOf("step 1", "step 1, held"));
  EXPECT_EQ(lines[1], "leaving 137, held");
  EXPECT_EQ(controller_.told.back().state(), muster::v1::PROCESS_EXITED);
}

/// Has room for three reports until the controller knows that the rank has ended.
class ShortOfRoom : public ReportsNoted {
 public:
  ShortOfRoom(std::vector<std::string>& lines, const Controller& controller)
      : ReportsNoted(lines, controller), steps_(lines), controller_(controller) {}
  rank::Backlog backlog() const override {
    const bool takes = controller_.answers && controller_.exit_is_told;
    const bool is_full = !takes && steps_.size() >= 3;
    return {is_full, is_full, takes ? 0 : steps_.size()};
  }

 private:
  const std::vector<std::string>& steps_;
  const Controller& controller_;
};

constexpr const char* kBurstAndFailure =
    "for i in 1 2 3 4 5; do echo \"{\\\"step\\\":$i}\"; done >> $MUSTER_REPORT; exit 3";

TEST_F(AgentOfOne, TellsAfterTheEndOfAFailureWhatTheControllerTakesLate) {
  std::vector<std::string> lines;
  setup_.report = [&](const spec::Environment&, pid_t) -> report::Connect {
    return [&] { return std::make_unique<ShortOfRoom>(lines, controller_); };
  };
  EXPECT_EQ(run(kBurstAndFailure), 3);
  ASSERT_THAT(lines, testing::SizeIs(6));
  EXPECT_THAT(lines[2], testing::StartsWith("step 3"));
  EXPECT_EQ(lines[4], "step 5, held, after the exit");
  EXPECT_EQ(lines[5], "leaving 3, held, after the exit");
}

// Which ends nobody's other ranks. Slurm does, once this task has ended.
TEST_F(AgentOfOne, DoesNotStayForAControllerThatDoesNotAnswer) {
  std::vector<std::string> lines;
  setup_.report = [&](const spec::Environment&, pid_t) -> report::Connect {
    return [&] { return std::make_unique<ShortOfRoom>(lines, controller_); };
  };
  controller_.answers = false;
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(run(kBurstAndFailure), 3);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, report::Relay::kStandsLong);
  ASSERT_THAT(lines, testing::SizeIs(4));
  EXPECT_EQ(lines[3], "leaving 3, held, after the exit") << "the others stand in the report file, which musterd reads";
}

TEST_F(AgentOfOne, TellsWhatAProgramThatDoesNotReportLeavesInItsLogAndOnDisk) {
  std::vector<std::string> lines;
  setup_.launch.report = {"$PLACE/step-*", {{"step", R"(step (\d+))"}}, ""};
  setup_.launch.env["PLACE"] = "ckpt";
  std::filesystem::create_directories(folder_ / "ckpt/step-1");
  test::write_file(folder_ / "ckpt/step-1/model", "of an attempt before");
  setup_.report = [&](const spec::Environment&, pid_t) -> report::Connect {
    return [&] { return std::make_unique<ReportsNoted>(lines, controller_); };
  };
  EXPECT_EQ(run("echo step 3; mkdir ckpt/step-2; echo x > ckpt/step-2/model"), 0);
  EXPECT_THAT(lines, testing::UnorderedElementsAre(testing::StartsWith("step 3"), testing::StartsWith("saved 2"),
                                                   "leaving 0, held"));
}

TEST_F(AgentOfOne, ASignalOfTheProgramIsItsOwnCode) {
  EXPECT_EQ(run("kill -SEGV $$"), 128 + SIGSEGV);
  EXPECT_EQ(controller_.told.back().signal(), SIGSEGV);
}

TEST_F(AgentOfOne, OfAnAttemptThatIsOverStartsNothing) {
  asked_first_ = muster::v1::DIRECTIVE_STOP;
  EXPECT_EQ(run("echo ran"), spec::kExitCannotStart);
  EXPECT_EQ(log(), "");
  EXPECT_EQ(controller_.told.back().trouble(), "its attempt is over already");
}

TEST_F(AgentOfOne, WaitsForProcessesOfAnEarlierAttemptThatDoNotEnd) {
  setup_.launch.env["MUSTER_ATTEMPT_FOLDER"] = folder_.path();
  int looks = 0;
  setup_.ending.earlier = [&](const process::AttemptMark&, auto) { return ++looks < 3 ? "process 12 (python3)" : ""; };
  EXPECT_EQ(run("echo ran"), 0);
  EXPECT_EQ(looks, 3);
  EXPECT_EQ(
      log(),
      "muster-agent: rank 0 waits for process 12 (python3) of an earlier attempt on this node, which SIGKILL has not "
      "ended yet\nran\n");
}

TEST_F(AgentOfOne, DoesNotStartBesideAProcessOfAnEarlierAttempt) {
  setup_.launch.env["MUSTER_ATTEMPT_FOLDER"] = folder_.path();
  setup_.ending.earlier = [](const process::AttemptMark&, auto) { return std::string("process 12 (python3)"); };
  setup_.ending.longest = 20ms;
  EXPECT_EQ(run("echo ran"), spec::kExitCannotStart);
  EXPECT_THAT(status().failed->reason,
              testing::MatchesRegex("process 12 .python3. of an earlier attempt is still on node .*, and "
                                    "SIGKILL does not end it"));
  EXPECT_THAT(log(), testing::Not(testing::HasSubstr("ran\n")));
  setup_.ending.longest = 60s;
  setup_.ending.earlier = [&](const process::AttemptMark&, auto) {
    controller_.ask(muster::v1::DIRECTIVE_STOP);
    return std::string("process 12 (python3)");
  };
  EXPECT_EQ(run("echo ran"), spec::kExitCannotStart);
  EXPECT_EQ(controller_.told.back().trouble(), "its attempt is over already");
}

TEST_F(AgentOfOne, StaysUntilWhatItsRankLeftBehindHasEndedButTellsTheEndBefore) {
  int looks = 0;
  bool told_before = false;
  setup_.ending.children = [&](auto) {
    if (++looks == 2) told_before = controller_.exit_is_told;
    return std::string(looks < 4 ? "process 12 (python3)" : "");
  };
  EXPECT_EQ(run("exit 3"), 3);
  EXPECT_EQ(looks, 4);
  EXPECT_TRUE(told_before) << "the other ranks must not wait";
  EXPECT_EQ(
      log(),
      "muster-agent: process 12 (python3) that rank 0 left behind does not end by SIGKILL; this agent stays until it "
      "does\n");
}

TEST_F(AgentOfOne, SaysWhyAProgramCannotStart) {
  setup_.launch.argv = {"no-such-program"};
  EXPECT_EQ(Agent(setup_).run(), spec::kExitCannotStart);
  EXPECT_EQ(status().failed->reason, "cannot execute no-such-program: No such file or directory");
  EXPECT_EQ(controller_.told.back().exit_code(), spec::kExitCannotStart);
}

TEST_F(AgentOfOne, AsksACommandToSaveAndTellsItWhy) {
  ask_when_ready(muster::v1::DIRECTIVE_SAVE_AND_LEAVE, "preempted");
  EXPECT_EQ(run("trap 'cat $MUSTER_STOP; exit 99' TERM; echo > gate; while :; do sleep 0.02; done"), 99);
  EXPECT_THAT(log(), testing::HasSubstr(R"({"why":"preempted","save":true,)"));
}

TEST_F(AgentOfOne, StoppedForAnotherRanksFailureItTellsTheErrorThatItsProgramClosesWith) {
  ask_when_ready(muster::v1::DIRECTIVE_STOP, "peer_failed");
  EXPECT_EQ(run("printf 'Traceback (most recent call last):\\nValueError: bad batch\\n'; echo > gate; exec sleep 1000"),
            128 + SIGTERM);
  EXPECT_EQ(end().error, "ValueError: bad batch");
}

TEST_F(AgentOfOne, AProgramThatLooksForTheStopFileByItselfGetsNoSignal) {
  ask_when_ready(muster::v1::DIRECTIVE_SAVE_AND_LEAVE, "preempted");
  EXPECT_EQ(run("touch $MUSTER_STOP.asked; trap 'exit 98' TERM; echo > gate; "
                "while [ ! -e $MUSTER_STOP ]; do sleep 0.02; done; sleep 0.3; exit 99"),
            99);
}

TEST_F(AgentOfOne, KillsAProgramThatDoesNotObeyAStop) {
  ask_when_ready(muster::v1::DIRECTIVE_STOP, "cancelled");
  EXPECT_EQ(run("trap '' TERM; echo > gate; while :; do sleep 0.02; done"), 128 + SIGKILL);
  EXPECT_FALSE(end().out_of_memory);
}

TEST_F(AgentOfOne, GivesTheStackOfItsRankWhenItIsAsked) {
  controller_.on_tell = [this](const TaskRequest& request) {
    if (request.state() != muster::v1::PROCESS_RUNNING) return;
    TaskResponse response;
    response.set_stacks(41);
    controller_.on_directive(response);
  };
  EXPECT_EQ(run("sleep 1; exit 0"), 0);
  const std::lock_guard lock(controller_.stacks_mutex);
  ASSERT_TRUE(controller_.stacks.contains(41));
  EXPECT_THAT(controller_.stacks.at(41), testing::HasSubstr(") == state of each thread, by the kernel\nthread "));
}

TEST_F(AgentOfOne, RankZeroOffersWhereItsProgramMayListen) {
  setup_.inherited.insert({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "0"}});
  controller_.meeting_point = "10.0.0.1:1234";
  EXPECT_EQ(run("echo $MASTER_ADDR $MASTER_PORT $WORLD_SIZE"), 0);
  EXPECT_EQ(log(), "10.0.0.1 1234 2\n");
  EXPECT_THAT(controller_.offers, testing::ElementsAre(testing::StartsWith("127.0.0.1:")));
}

TEST_F(AgentOfOne, WithoutAMeetingPointStartsNothing) {
  setup_.inherited.insert({{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"SLURM_LOCALID", "1"}});
  EXPECT_EQ(run("echo ran"), spec::kExitCannotStart);
  EXPECT_EQ(controller_.told.back().trouble(), "the controller did not tell where rank 0 listens");
  EXPECT_THAT(controller_.offers, testing::ElementsAre(""));
}

TEST_F(AgentOfOne, NeedsAController) {
  setup_.launch.env.erase("MUSTER_CONTROLLER");
  setup_.launch.argv = {"true"};
  EXPECT_THROW(Agent{setup_}, std::runtime_error);
}

}  // namespace
}  // namespace agent::program
