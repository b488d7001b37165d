#include "agent/rank/grpc/grpc_reporter.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>

#include "agent/rank/reporter.h"
#include "base/durable_file.h"
#include "controller/rpc/rpc_server.h"
#include "muster/v1/rank_service.grpc.pb.h"
#include "tests/claimed_port.h"
#include "tests/controller/rpc/fake_controller.h"
#include "tests/temporary_folder.h"

namespace {

using namespace std::chrono_literals;
using agent::rank::StopKind;
using rpc::testing::FakeController;
using ::testing::HasSubstr;
using Clock = std::chrono::steady_clock;

/// Says nothing of the job, so the rank stays registered.
const common::Refusal kBusy{common::Refusal::Kind::kUnavailable, "the store is busy"};

agent::rank::StepReport step(std::int64_t number) {
  agent::rank::StepReport report;
  report.step = number;
  report.values = {{"loss", 1.0 / static_cast<double>(number)}};
  report.step_ms = 12;
  return report;
}

class GrpcReporter : public testing::Test {
 protected:
  agent::rank::RankEnvironment environment(int rank = 0, int world_size = 1) const {
    agent::rank::RankEnvironment e;
    e.rank = e.local_rank = rank;
    e.world_size = e.local_world_size = world_size;
    e.controller = agent::rank::Endpoint{"127.0.0.1", port_.number()};
    e.token = FakeController::kRankToken;
    e.job_id = "1";
    e.attempt = 1;
    return e;
  }
  std::unique_ptr<agent::rank::Reporter> reporter(agent::rank::GrpcReporterOptions options = {}) const {
    return agent::rank::make_grpc_reporter(environment(), options);
  }
  bool arrived(std::size_t count) {
    return controller_.wait_until([&](const FakeController& c) {
      const auto steps = c.steps.find(0);
      return steps != c.steps.end() && steps->second.size() >= count;
    });
  }
  bool heard(int more = 1) {
    int seen = 0;
    controller_.wait_until([&](const FakeController& c) {
      const auto found = c.heartbeats.find(0);
      seen = found == c.heartbeats.end() ? 0 : found->second;
      return true;
    });
    return controller_.wait_until([&](const FakeController& c) {
      const auto found = c.heartbeats.find(0);
      return found != c.heartbeats.end() && found->second >= seen + more;
    });
  }
  /// The rank knows that all its reports have arrived: its newest heartbeat carries none.
  bool acknowledged() {
    return controller_.wait_until([](const FakeController& c) {
      const auto newest = c.last_heartbeat.find(0);
      return newest != c.last_heartbeat.end() && newest->second.metrics_size() == 0;
    });
  }
  /// Waits for `more` refusals of any call.
  bool refused(int more) {
    int seen = 0;
    controller_.wait_until([&](const FakeController& c) {
      seen = c.refusals;
      return true;
    });
    return controller_.wait_until([&](const FakeController& c) { return c.refusals >= seen + more; });
  }
  muster::v1::HeartbeatRequest newest() {
    muster::v1::HeartbeatRequest request;
    controller_.wait_until([&](const FakeController& c) {
      request = c.last_heartbeat.at(0);
      return true;
    });
    return request;
  }
  void restart_server() { server_ = rpc::serve(controller_, port_.on("127.0.0.1")); }

  FakeController controller_;
  test::ClaimedPort port_;  // servers come back to it
  std::unique_ptr<rpc::Server> server_ = rpc::serve(controller_, port_.on("127.0.0.1"));
};

TEST_F(GrpcReporter, TellsWhereTheRankStands) {
  const auto reporter = this->reporter();
  reporter->section(agent::rank::Section::kCheckpoint);
  reporter->resumed_from(40);
  reporter->step(step(41));
  reporter->checkpoint_saved(41, 1000, 2.5);
  ASSERT_TRUE(arrived(1));
  ASSERT_TRUE(heard());
  const auto request = newest();
  EXPECT_EQ(request.step(), 41);
  EXPECT_EQ(request.section(), muster::v1::SECTION_CHECKPOINT);
  EXPECT_EQ(request.resumed_from_step(), 40);
  EXPECT_EQ(request.step_ms(), 12);
  EXPECT_GT(request.memory_bytes(), 1 << 20);
  EXPECT_GE(request.memory_peak_bytes(), request.memory_bytes() / 2);
  EXPECT_EQ(controller_.checkpoints, std::set<core::Step>{41});
  EXPECT_TRUE(reporter->assigns_rendezvous());
}

TEST_F(GrpcReporter, TellsWhatAProgramSaysOfItselfOnceAStream) {
  const auto reporter = this->reporter();
  const auto told = [&](const std::string& status) {
    return controller_.wait_until([&](const FakeController& c) {
      const auto found = c.last_program.find(0);
      return found != c.last_program.end() && found->second.status() == status;
    });
  };
  agent::rank::ProgramWords words;
  words.section = "tune";
  words.status = "tunes";
  words.total_steps = 60;
  words.config = R"({"lr":0.5})";
  words.error = {"ValueError", "no", "line 3"};
  reporter->program(words);
  ASSERT_TRUE(told("tunes"));
  ASSERT_TRUE(heard(3));
  EXPECT_EQ(newest().section_name(), "tune");
  EXPECT_FALSE(newest().has_program()) << "nothing of it is new";
  words.status = "trains";
  reporter->program(words);
  ASSERT_TRUE(told("trains"));
  server_->shutdown();
  controller_.last_program.clear();
  restart_server();
  ASSERT_TRUE(told("trains")) << "a controller that was started anew knows nothing";
  controller_.wait_until([&](const FakeController& c) {
    EXPECT_EQ(c.last_program.at(0).total_steps(), 60);
    EXPECT_EQ(c.last_program.at(0).config(), R"({"lr":0.5})");
    EXPECT_EQ(c.last_program.at(0).error().message(), "no");
    return true;
  });
}

TEST_F(GrpcReporter, LosesNoStepToAControllerThatMovesMeanwhile) {
  const test::TemporaryFolder folder;
  auto where = environment();
  where.controller_file = folder.path() / "musterd.json";
  const auto reporter = agent::rank::make_grpc_reporter(where);
  reporter->step(step(1));
  ASSERT_TRUE(arrived(1));
  server_->shutdown();
  reporter->step(step(2));
  const test::ClaimedPort another;
  server_ = rpc::serve(controller_, another.on("127.0.0.1"));
  base::write_file_durably(where.controller_file, R"({"advertised":")" + another.on("127.0.0.1") + "\"}");
  EXPECT_TRUE(arrived(2));
}

// A recipe has no [report], so musterd shows the note where it shows what is wrong with that.
TEST_F(GrpcReporter, TellsTheNoteOfARecipeUnlessASourceIsInTrouble) {
  const auto reporter = this->reporter();
  const auto told = [&](const std::string& note) {
    return controller_.wait_until([&](const FakeController& c) {
      const auto found = c.last_program.find(0);
      return found != c.last_program.end() && found->second.source_trouble() == note;
    });
  };
  agent::rank::ProgramWords words;
  words.note = "goes on from step 2 with other settings: train.batch_size = 16 (8 until then)";
  reporter->program(words);
  EXPECT_TRUE(told(words.note));
  words.source_trouble = "no such log";
  reporter->program(words);
  EXPECT_TRUE(told("no such log"));
}

TEST_F(GrpcReporter, SaysWhenItHasNotResumedYet) {
  const auto reporter = this->reporter();
  ASSERT_TRUE(heard());
  EXPECT_FALSE(newest().has_resumed_from_step());
}

// Goal: an outage of the controller leaves no gap and no step twice.
// Method: steps go on while the server is gone; another one starts on the same port.
TEST_F(GrpcReporter, AnOutageLeavesNoGapAndNoDuplicate) {
  const auto reporter = this->reporter();
  for (int i = 1; i <= 50; ++i) reporter->step(step(i));
  ASSERT_TRUE(arrived(50));
  ASSERT_TRUE(acknowledged()) << "what is not acknowledged is rightly sent again";
  server_->shutdown();
  const auto begin = Clock::now();
  for (int i = 51; i <= 1500; ++i) reporter->step(step(i));
  EXPECT_LT(Clock::now() - begin, 1s) << "training never waits";
  std::this_thread::sleep_for(150ms);  // most of the time a heartbeat fails meanwhile; it is right either way
  EXPECT_EQ(reporter->stop_requested(), StopKind::kNone);
  restart_server();
  ASSERT_TRUE(arrived(1500));
  ASSERT_TRUE(heard(3));
  reporter->leaving(0, "done");
  server_->shutdown();

  std::vector<core::Step> expected;
  for (int i = 1; i <= 1500; ++i) expected.push_back(i);
  EXPECT_EQ(controller_.order[0], expected) << "oldest first, each once";
  EXPECT_LE(controller_.largest_batch, 512);
}

TEST_F(GrpcReporter, HeartbeatsGoOverOneStreamThatIsOpenedAgainWhenItBreaks) {
  const auto reporter = this->reporter();
  ASSERT_TRUE(heard(5));
  const auto opened = [&](int count) {
    return controller_.wait_until([&](const FakeController& c) { return c.streams_opened == count; });
  };
  EXPECT_TRUE(opened(1));
  server_->shutdown();
  restart_server();
  EXPECT_TRUE(heard(5));
  EXPECT_TRUE(opened(2));
  EXPECT_TRUE(controller_.wait_until([](const FakeController& c) { return c.registers == 1; })) << "it is known still";
}

TEST_F(GrpcReporter, WhatTheControllerDidNotTakeIsSentAgain) {
  controller_.set_most_accepted(2);
  auto reporter = this->reporter();
  for (int i = 1; i <= 7; ++i) reporter->step(step(i));
  ASSERT_TRUE(arrived(7));
  reporter.reset();
  EXPECT_EQ(controller_.order[0], (std::vector<core::Step>{1, 2, 3, 4, 5, 6, 7}));
}

TEST_F(GrpcReporter, StartsBeforeItsControllerAndFindsItLater) {
  server_->shutdown();
  const auto reporter = this->reporter();
  reporter->step(step(1));
  std::this_thread::sleep_for(300ms);  // a few attempts in vain; it is right either way
  restart_server();
  EXPECT_TRUE(arrived(1));
}

TEST_F(GrpcReporter, AControllerThatForgotTheJobDoesNotStopTheTraining) {
  const auto reporter = this->reporter();
  ASSERT_TRUE(heard());
  controller_.set_rank_refusal(common::Refusal{common::Refusal::Kind::kNotFound, "no job 1"});
  reporter->step(step(1));
  ASSERT_TRUE(refused(3)) << "the rank has heard the first refusal when it asks again";
  EXPECT_EQ(reporter->stop_requested(), StopKind::kNone);
  controller_.set_rank_refusal(std::nullopt);
  EXPECT_TRUE(arrived(1));
  EXPECT_TRUE(controller_.wait_until([](const FakeController& c) { return c.registers >= 2; }))
      << "it introduces itself";
}

// Goal: a rank asks a controller that refuses ever more seldom, but never so seldom that it would miss its return.
// Method: waits that double from a millisecond; without the limit the twentieth would take ten minutes.
TEST_F(GrpcReporter, AsksARefusingControllerAtALimitedPace) {
  agent::rank::GrpcReporterOptions options;
  options.backoff_first = 1ms;
  options.backoff_most = 4ms;
  const auto reporter = this->reporter(options);
  ASSERT_TRUE(heard());
  controller_.set_rank_refusal(kBusy);
  EXPECT_TRUE(refused(30));
}

// Goal: one outage does not slow down the reports after the next.
// Method: waits without a limit. Each outage takes eight refusals, which is half a second when each begins anew; the
// second one would take two minutes if it went on where the first had ended.
TEST_F(GrpcReporter, AnOutageBeginsWithShortWaitsWhateverWasBefore) {
  agent::rank::GrpcReporterOptions options;
  options.backoff_first = 1ms;
  options.backoff_most = 24h;
  const auto reporter = this->reporter(options);
  for (int outage = 1; outage <= 2; ++outage) {
    ASSERT_TRUE(heard());
    controller_.set_rank_refusal(kBusy);
    ASSERT_TRUE(refused(8)) << "outage " << outage;
    controller_.set_rank_refusal(std::nullopt);
  }
}

TEST_F(GrpcReporter, MetricsThatAreRefusedAsInvalidDoNotSilenceTheRank) {
  const auto reporter = this->reporter();
  ASSERT_TRUE(heard());
  controller_.refuse_step(7);
  reporter->step(step(7));
  ASSERT_TRUE(controller_.wait_until([](const FakeController& c) { return c.refused_batches > 0; }));
  ASSERT_TRUE(heard(2));
  reporter->step(step(8));
  ASSERT_TRUE(arrived(1));
  EXPECT_EQ(controller_.order[0], std::vector<core::Step>{8});
}

TEST_F(GrpcReporter, PassesOnWhatTheControllerAsksFor) {
  const auto reporter = this->reporter({.rendezvous_limit = 10s, .fenced_grace = 60s});
  ASSERT_TRUE(heard());
  EXPECT_EQ(reporter->stop_requested(), StopKind::kNone);
  controller_.set_directive(muster::v1::DIRECTIVE_SAVE_AND_LEAVE);
  ASSERT_TRUE(heard(2));
  EXPECT_EQ(reporter->stop_requested(), StopKind::kSave);
  controller_.set_directive(muster::v1::DIRECTIVE_STOP);
  for (const auto until = Clock::now() + 5s; reporter->stop_requested() != StopKind::kNow && Clock::now() < until;) {
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(reporter->stop_requested(), StopKind::kNow);
  const auto begin = Clock::now();
  reporter->leaving(94, "fenced");
  // It would offer its last words for two seconds.
  EXPECT_LT(Clock::now() - begin, 1500ms) << "nobody listens to a fenced rank";
}

TEST_F(GrpcReporter, KeepsTheIntervalTheControllerHandsOut) {
  controller_.set_interval(core::Millis(200));
  const auto reporter = this->reporter();
  ASSERT_TRUE(heard());
  const auto begin = Clock::now();
  ASSERT_TRUE(heard(3));
  EXPECT_GE(Clock::now() - begin, 350ms);

  controller_.set_interval(core::Millis(20));
  ASSERT_TRUE(heard());
  EXPECT_TRUE(heard(40)) << "at the usual interval it would take 20 s";
}

TEST_F(GrpcReporter, LeavingDeliversEverythingAndTheLastWords) {
  controller_.set_interval(core::Millis(60'000));
  auto reporter = this->reporter();
  ASSERT_TRUE(heard());
  for (int i = 1; i <= 2000; ++i) reporter->step(step(i));
  reporter->leaving(1, "loss is \xff at step 3; see r\xc3\xa4ume");
  reporter.reset();
  EXPECT_EQ(controller_.steps[0].size(), 2000u);
  EXPECT_EQ(controller_.left[0], std::make_pair(1, std::string("loss is ? at step 3; see r\xc3\xa4ume")));
  EXPECT_EQ(controller_.last_heartbeat[0].section(), muster::v1::SECTION_DONE);
}

// Goal: the controller knows each number by its name and hears rank 0's numbers from rank 0 alone.
// Method: two ranks tell the same of one step, with their last words.
TEST_F(GrpcReporter, ValuesArriveUnderTheNamesOfTheirSeries) {
  controller_.set_interval(core::Millis(60'000));
  for (const int rank : {0, 1}) {
    auto reporter = agent::rank::make_grpc_reporter(environment(rank, 2));
    ASSERT_TRUE(controller_.wait_until([&](const FakeController& c) { return c.heartbeats.contains(rank); }));
    reporter->declare({{.name = "loss", .unit = "nats", .over_ranks = spec::OverRanks::kRank0},
                       {.name = "experts/used", .over_ranks = spec::OverRanks::kMax}});
    auto report = step(1);
    report.values = {{"loss", 2.5}, {"experts/used", 6}, {"undeclared", std::numeric_limits<double>::infinity()}};
    reporter->step(report);
    reporter->leaving(0, "done");
  }
  const auto& first = controller_.last_heartbeat.at(0);
  const auto& second = controller_.last_heartbeat.at(1);
  ASSERT_EQ(first.metrics_size(), 1);
  ASSERT_EQ(second.metrics_size(), 1);
  EXPECT_EQ(first.metrics(0).values_size(), 3);
  EXPECT_EQ(first.metrics(0).values(0).ShortDebugString(), "series: \"loss\" value: 2.5");
  ASSERT_EQ(second.metrics(0).values_size(), 2);
  EXPECT_EQ(second.metrics(0).values(0).ShortDebugString(), "series: \"experts/used\" value: 6");
  EXPECT_EQ(second.metrics(0).values(1).value(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(first.series_size(), 2);
  ASSERT_EQ(second.series_size(), 1);
  EXPECT_EQ(second.series(0).over_ranks(), "max");
}

TEST_F(GrpcReporter, LeavingWithoutAControllerTakesTwoSecondsAtMost) {
  auto reporter = this->reporter();
  ASSERT_TRUE(heard());
  server_->shutdown();
  reporter->step(step(1));
  const auto begin = Clock::now();
  reporter->leaving(0, "done");
  reporter.reset();
  EXPECT_LT(Clock::now() - begin, 3s);
}

TEST_F(GrpcReporter, FourRanksMeetWhereRankZeroListens) {
  std::vector<std::unique_ptr<agent::rank::Reporter>> reporters;
  for (int rank = 0; rank < 4; ++rank) reporters.push_back(agent::rank::make_grpc_reporter(environment(rank, 4)));
  std::vector<agent::rank::Endpoint> answers(4);
  std::vector<std::thread> threads;
  for (int rank = 3; rank >= 0; --rank) {
    threads.emplace_back([&, rank] {
      std::optional<agent::rank::Endpoint> mine;
      if (rank == 0) mine = agent::rank::Endpoint{"10.1.2.3", 29501};
      answers[static_cast<std::size_t>(rank)] = reporters[static_cast<std::size_t>(rank)]->rendezvous(mine);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(answers, std::vector<agent::rank::Endpoint>(4, agent::rank::Endpoint{"10.1.2.3", 29501}));
}

std::string error_of_meeting(agent::rank::Reporter& reporter) {
  try {
    reporter.rendezvous(std::nullopt);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST_F(GrpcReporter, AMeetingThatNeverHappensEndsWithWhatToDo) {
  const agent::rank::GrpcReporterOptions options{
      .rendezvous_limit = 1000ms, .rendezvous_away_limit = 2000ms, .fenced_grace = 1s};
  EXPECT_EQ(error_of_meeting(*reporter(options)),
            "rendezvous: rank 0 waited 1 s but rank 0 has not said where it listens; look into rank 0's log");
  server_->shutdown();
  const auto error = error_of_meeting(*reporter(options));
  EXPECT_THAT(error, HasSubstr("waited 2 s for the controller at 127.0.0.1:"));
  EXPECT_THAT(error, HasSubstr("check that musterd runs"));
}

TEST_F(GrpcReporter, AFencedRankDoesNotMeet) {
  const auto reporter = this->reporter({.rendezvous_limit = 10s, .fenced_grace = 60s});
  ASSERT_TRUE(heard());
  controller_.set_directive(muster::v1::DIRECTIVE_STOP);
  EXPECT_THROW(reporter->rendezvous(std::nullopt), agent::rank::FencedError);
}

TEST_F(GrpcReporter, ARefusedMeetingPointIsToldAtOnce) {
  controller_.set_rank_refusal(common::Refusal{common::Refusal::Kind::kInvalid, "endpoint: want host:port"});
  EXPECT_EQ(error_of_meeting(*reporter()), "rendezvous: the controller refuses: endpoint: want host:port");
}

TEST_F(GrpcReporter, AnEnvironmentWithoutAJobIsRefusedByItsVariable) {
  auto without_job = environment();
  without_job.job_id = "x7";
  EXPECT_THROW(agent::rank::make_grpc_reporter(without_job), std::invalid_argument);
  auto without_attempt = environment();
  without_attempt.attempt = 0;
  EXPECT_THROW(agent::rank::make_grpc_reporter(without_attempt), std::invalid_argument);
}

}  // namespace
