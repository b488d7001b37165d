// Goal: a disk that stands still stops neither a rank's heartbeats nor its training, and costs a bounded wait at its
// end. Method: the unsent file, or stderr, is a pipe that nobody reads, so whoever touches it waits until the test
// reads.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <thread>

#include "agent/rank/grpc/grpc_reporter.h"
#include "controller/ranks/reports.h"
#include "controller/rpc/rpc_server.h"
#include "tests/claimed_port.h"
#include "tests/controller/rpc/fake_controller.h"
#include "tests/temporary_folder.h"

namespace {

using namespace std::chrono_literals;
using rpc::testing::FakeController;
using Time = std::chrono::steady_clock;

agent::rank::StepReport numbered(std::int64_t number) {
  agent::rank::StepReport report;
  report.step = number;
  return report;
}

class StandingDisk : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(file_.parent_path());
    ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  }
  void TearDown() override { go_on(); }
  /// Whoever waits for the file goes on, and finds an ordinary one the next time.
  void go_on() {
    if (reader_ >= 0) return;
    reader_ = ::open(file_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  }
  std::unique_ptr<agent::rank::Reporter> reporter(agent::rank::GrpcReporterOptions options = {}) const {
    agent::rank::RankEnvironment e;
    e.controller = agent::rank::Endpoint{"127.0.0.1", port_.number()};
    e.token = FakeController::kRankToken;
    e.job_id = "1";
    e.attempt = 1;
    e.attempt_folder = (folder_ / "attempt-1").string();
    return agent::rank::make_grpc_reporter(e, options);
  }
  bool heard(int more) {
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
  bool arrived(std::size_t count) {
    return controller_.wait_until([&](const FakeController& c) {
      const auto steps = c.steps.find(0);
      return steps != c.steps.end() && steps->second.size() >= count;
    });
  }
  std::vector<std::int64_t> steps_on_disk() const {
    std::vector<std::int64_t> steps;
    ranks::read_unsent(file_, [&](const muster::v1::HeartbeatRequest& request) {
      for (const auto& metric : request.metrics()) steps.push_back(metric.step());
      return true;
    });
    return steps;
  }

  test::TemporaryFolder folder_;
  const std::filesystem::path file_ = folder_ / "attempt-1/unsent/rank-0";
  int reader_ = -1;
  FakeController controller_;
  test::ClaimedPort port_;
  std::unique_ptr<rpc::Server> server_ = rpc::serve(controller_, port_.on("127.0.0.1"));
};

TEST_F(StandingDisk, HoldsUpNeitherHeartbeatsNorTraining) {
  controller_.set_interval(core::Millis(20));
  const auto reporter = this->reporter();
  ASSERT_TRUE(heard(1));
  controller_.set_most_accepted(0);
  const auto begin = Time::now();
  for (int i = 1; i <= 100; ++i) reporter->step(numbered(i));
  reporter->section(agent::rank::Section::kCheckpoint);
  EXPECT_LT(Time::now() - begin, 1s);
  EXPECT_TRUE(heard(20)) << "what the store does not take is to be kept in a file, and it goes on all the same";
  controller_.set_directive(muster::v1::DIRECTIVE_SAVE_AND_LEAVE);
  ASSERT_TRUE(heard(2));
  EXPECT_EQ(reporter->stop_requested(), agent::rank::StopKind::kSave);
  controller_.set_most_accepted(1000);
  EXPECT_TRUE(arrived(100));
}

TEST_F(StandingDisk, DelaysACheckpointByABoundedTime) {
  controller_.set_interval(core::Millis(60'000));
  agent::rank::GrpcReporterOptions options;
  options.keep_limit = 100ms;
  const auto reporter = this->reporter(options);
  ASSERT_TRUE(heard(1));
  reporter->step(numbered(1));
  const auto begin = Time::now();
  reporter->keep();
  reporter->keep();
  EXPECT_LT(Time::now() - begin, 2s);
}

TEST_F(StandingDisk, DelaysAnEndByABoundedTime) {
  agent::rank::GrpcReporterOptions options;
  options.leaving_limit = 100ms;
  options.file_limit = 100ms;
  auto reporter = this->reporter(options);
  ASSERT_TRUE(heard(1));
  server_->shutdown();
  reporter->step(numbered(1));
  const auto begin = Time::now();
  reporter->leaving(1, "an error");
  reporter.reset();
  EXPECT_LT(Time::now() - begin, 2s);
}

TEST_F(StandingDisk, IsWaitedForByARankThatIsDone) {
  agent::rank::GrpcReporterOptions options;
  options.leaving_limit = 100ms;
  options.file_limit = 100ms;
  auto reporter = this->reporter(options);
  ASSERT_TRUE(heard(1));
  server_->shutdown();
  for (int i = 1; i <= 3; ++i) reporter->step(numbered(i));
  std::thread leaving([&] {
    reporter->leaving(0, "done");
    reporter.reset();
  });
  std::this_thread::sleep_for(500ms);  // past the short limits; it is right either way
  go_on();
  leaving.join();
  EXPECT_EQ(steps_on_disk(), (std::vector<std::int64_t>{1, 2, 3}));
}

/// While it lives, stderr takes nothing: a print of the training's waits in it, and has its lock.
class StandingLog {
 public:
  StandingLog() : before_(::dup(STDERR_FILENO)) {
    EXPECT_EQ(::pipe2(ends_, O_CLOEXEC), 0);
    ::fcntl(ends_[1], F_SETFL, O_NONBLOCK);
    const std::string block(4096, 'x');
    while (::write(ends_[1], block.data(), block.size()) > 0) {
    }
    ::fcntl(ends_[1], F_SETFL, 0);
    ::dup2(ends_[1], STDERR_FILENO);
    ::flockfile(stderr);
  }
  ~StandingLog() {
    ::funlockfile(stderr);
    ::dup2(before_, STDERR_FILENO);
    ::close(ends_[1]);
    ::close(ends_[0]);  // a write that waits ends
    ::close(before_);
  }

 private:
  int before_;
  int ends_[2] = {-1, -1};
};

TEST_F(StandingDisk, ALogThatTakesNothingHoldsUpNobody) {
  go_on();
  const auto reporter = this->reporter();
  ASSERT_TRUE(heard(1));
  const auto sigpipe = ::signal(SIGPIPE, SIG_IGN);
  {
    const StandingLog log;
    controller_.set_rank_refusal(common::Refusal{common::Refusal::Kind::kUnavailable, "the store is busy"});
    ASSERT_TRUE(controller_.wait_until([](const FakeController& c) { return c.refusals > 0; })) << "it warns";
    reporter->step(numbered(1));
    controller_.set_rank_refusal(std::nullopt);
    EXPECT_TRUE(arrived(1)) << "and says that the controller is back";
    EXPECT_TRUE(heard(3));
  }
  ::signal(SIGPIPE, sigpipe);
}

}  // namespace
