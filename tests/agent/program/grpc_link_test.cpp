// Goal: what an agent tells reaches the controller at once and over one stream, whatever breaks, and flush() knows it.
// Method: the link before a real server with a fake controller.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "agent/program/controller_link.h"
#include "base/durable_file.h"
#include "controller/rpc/rpc_server.h"
#include "tests/claimed_port.h"
#include "tests/controller/rpc/fake_controller.h"
#include "tests/temporary_folder.h"

namespace {

using muster::v1::TaskRequest;
using muster::v1::TaskResponse;
using rpc::testing::FakeController;
using namespace std::chrono_literals;

TaskRequest task(muster::v1::ProcessState state, std::uint32_t rank = 0) {
  TaskRequest request;
  request.mutable_key()->set_rank(rank);
  request.mutable_key()->set_job_id(7);
  request.mutable_key()->set_attempt(1);
  request.set_state(state);
  return request;
}

class Link : public ::testing::Test {
 protected:
  void start(int port) {
    link_ = agent::program::link_by_grpc({{"127.0.0.1", static_cast<std::uint16_t>(port)}, file_},
                                         FakeController::kRankToken, task(muster::v1::PROCESS_STARTING),
                                         [this](const TaskResponse& answer) {
                                           const std::lock_guard lock(mutex_);
                                           told_.push_back(answer.directive());
                                           heard_.notify_all();
                                         });
  }
  bool is_told(muster::v1::Directive directive) {
    std::unique_lock lock(mutex_);
    return heard_.wait_for(lock, 10s, [&] { return !told_.empty() && told_.back() == directive; });
  }
  bool heard(std::size_t requests) {
    return controller_.wait_until([&](const FakeController& c) { return c.tasks.size() >= requests; });
  }
  std::size_t heard_now() {
    std::size_t count = 0;
    controller_.wait_until([&](const FakeController& c) { return (count = c.tasks.size(), true); });
    return count;
  }
  /// How many requests were heard once none has come for so long. One that was on its way before hold() may come late.
  std::size_t heard_when_quiet(std::chrono::milliseconds quiet) {
    auto count = heard_now();
    const auto give_up = std::chrono::steady_clock::now() + 20s;
    for (auto since = std::chrono::steady_clock::now(), now = since; now - since < quiet && now < give_up;
         now = std::chrono::steady_clock::now()) {
      std::this_thread::sleep_for(10ms);
      if (const auto newer = heard_now(); newer != count) {
        count = newer;
        since = std::chrono::steady_clock::now();
      }
    }
    return count;
  }
  std::vector<muster::v1::Directive> told() {
    const std::lock_guard lock(mutex_);
    return told_;
  }

  FakeController controller_;
  std::string file_;        // that tells where the controller is; empty: none
  test::ClaimedPort port_;  // servers come back to it
  std::mutex mutex_;
  std::condition_variable heard_;
  std::vector<muster::v1::Directive> told_;
  std::unique_ptr<agent::program::ControllerLink> link_;
};

// The first controller was overloaded and asked to be told once in four seconds. The next one wants to hear more, and
// misses a task that is silent for as long as that.
TEST_F(Link, LearnsTheIntervalOfAControllerThatHasRestartedBeforeItWaits) {
  controller_.set_interval(4s);
  auto server = rpc::serve(controller_, port_.on("127.0.0.1"));
  start(server->port());
  ASSERT_TRUE(link_->flush(10s));
  server->shutdown();
  server.reset();
  controller_.set_interval(50ms);
  const auto before = heard_now();
  server = rpc::serve(controller_, port_.on("127.0.0.1"));
  ASSERT_TRUE(heard(before + 1));
  const auto back = std::chrono::steady_clock::now();
  ASSERT_TRUE(heard(before + 4));
  EXPECT_LT(std::chrono::steady_clock::now() - back, 3s);
  link_.reset();
  server->shutdown();
}

TEST_F(Link, TellsOverOneStreamAndKnowsWhatIsHeard) {
  controller_.set_interval(50ms);
  const auto server = rpc::serve(controller_, port_.on("127.0.0.1"));
  start(server->port());
  ASSERT_TRUE(link_->flush(10s));
  ASSERT_TRUE(heard(5)) << "at the interval";
  link_->tell(task(muster::v1::PROCESS_EXITED));
  EXPECT_TRUE(link_->flush(10s));
  EXPECT_LT(link_->unheard_for(), 3s);
  link_.reset();
  server->shutdown();
  EXPECT_EQ(controller_.tasks.back().state(), muster::v1::PROCESS_EXITED);
  EXPECT_EQ(controller_.task_streams_opened, 1);
}

TEST_F(Link, HoldsUntilThereIsSomethingNewToTell) {
  controller_.set_interval(50ms);
  const auto server = rpc::serve(controller_, port_.on("127.0.0.1"));
  start(server->port());
  ASSERT_TRUE(heard(3));
  link_->hold(0);
  const auto heard_before = heard_when_quiet(300ms);
  std::this_thread::sleep_for(500ms);  // ten intervals
  EXPECT_LE(heard_now(), heard_before + 1) << "one may have been on its way";
  link_->tell(task(muster::v1::PROCESS_EXITED));
  EXPECT_TRUE(link_->flush(10s));
  ASSERT_TRUE(heard(heard_before + 2)) << "at the interval again";
}

// An agent on musterd's own machine has all ranks of an attempt. The first to end is the culprit.
TEST_F(Link, TellsOfSeveralRanksInTheOrderOfTheNewsAndAllAnewOnANewStream) {
  controller_.set_interval(10'000ms);
  auto server = rpc::serve(controller_, port_.on("127.0.0.1"));
  start(server->port());
  link_->tell(task(muster::v1::PROCESS_RUNNING, 0));
  link_->tell(task(muster::v1::PROCESS_RUNNING, 1));
  link_->tell(task(muster::v1::PROCESS_RUNNING, 2));
  ASSERT_TRUE(link_->flush(9s));
  const auto before = heard_now();
  link_->tell(task(muster::v1::PROCESS_EXITED, 2));
  ASSERT_TRUE(link_->flush(9s));
  ASSERT_TRUE(heard(before + 1));
  EXPECT_EQ(heard_now(), before + 1) << "the news alone";
  server->shutdown();
  link_->tell(task(muster::v1::PROCESS_EXITED, 0));
  link_->hold(1);
  const auto away = heard_now();
  server = rpc::serve(controller_, port_.on("127.0.0.1"));
  ASSERT_TRUE(link_->flush(20s));
  link_.reset();
  server->shutdown();
  std::vector<std::uint32_t> ranks;
  for (std::size_t i = away; i < controller_.tasks.size(); ++i) ranks.push_back(controller_.tasks[i].key().rank());
  EXPECT_THAT(ranks, ::testing::ElementsAre(2U, 0U)) << "rank 1 is held, and rank 2 was the first to end";
}

// The end of a rank waits for its last reports, and musterd may be started again meanwhile.
TEST_F(Link, TellsTheEndOfAHeldRankAlthoughTheStreamHasBrokenMeanwhile) {
  controller_.set_interval(10'000ms);
  auto server = rpc::serve(controller_, port_.on("127.0.0.1"));
  start(server->port());
  ASSERT_TRUE(link_->flush(9s));
  link_->hold(0);
  server->shutdown();
  server.reset();
  std::this_thread::sleep_for(300ms);  // the stream ends, and there is nothing to be told
  server = rpc::serve(controller_, port_.on("127.0.0.1"));
  link_->tell(task(muster::v1::PROCESS_EXITED));
  EXPECT_TRUE(link_->flush(20s));
}

// The intervals are so long that nothing but the change itself can be the cause.
TEST_F(Link, TellsAChangeAndHearsADirectiveAtOnce) {
  controller_.set_interval(10'000ms);
  const auto server = rpc::serve(controller_, port_.on("127.0.0.1"));
  start(server->port());
  ASSERT_TRUE(link_->flush(10s));
  const auto begin = std::chrono::steady_clock::now();
  link_->tell(task(muster::v1::PROCESS_RUNNING));
  EXPECT_TRUE(link_->flush(9s));
  TaskResponse stop;
  stop.set_directive(muster::v1::DIRECTIVE_STOP);
  stop.set_interval_ms(10'000);
  controller_.push(stop);
  controller_.push(stop);
  EXPECT_TRUE(is_told(muster::v1::DIRECTIVE_STOP));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 9s);
  link_->tell(task(muster::v1::PROCESS_EXITED));
  EXPECT_TRUE(link_->flush(9s));
  EXPECT_THAT(told(), ::testing::ElementsAre(muster::v1::DIRECTIVE_STOP, muster::v1::DIRECTIVE_CONTINUE))
      << "once for each change: the fake's own answer says to go on";
}

// News that is not urgent costs no request of its own.
TEST_F(Link, TellsWhatHasTimeWithTheNextRequest) {
  controller_.set_interval(10'000ms);
  const auto server = rpc::serve(controller_, port_.on("127.0.0.1"));
  start(server->port());
  ASSERT_TRUE(link_->flush(10s));
  const auto heard_before = heard_now();
  auto later = task(muster::v1::PROCESS_RUNNING);
  later.mutable_use()->set_cores(1.5);
  link_->tell_later(later);
  EXPECT_TRUE(link_->flush(0ms)) << "nobody waits for it";
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(heard_now(), heard_before);
  later.set_pid(5);
  link_->tell(later);
  ASSERT_TRUE(link_->flush(9s));
  ASSERT_TRUE(heard(heard_before + 1));
  link_.reset();
  server->shutdown();
  EXPECT_EQ(controller_.tasks.back().use().cores(), 1.5);
}

TEST_F(Link, OpensANewStreamWhenTheControllerIsBack) {
  controller_.set_interval(50ms);
  auto server = rpc::serve(controller_, port_.on("127.0.0.1"));
  start(server->port());
  ASSERT_TRUE(link_->flush(10s));
  server->shutdown();
  link_->tell(task(muster::v1::PROCESS_EXITED));
  EXPECT_FALSE(link_->flush(300ms)) << "nobody has heard it";
  EXPECT_GT(link_->unheard_for(), 200ms);
  server = rpc::serve(controller_, port_.on("127.0.0.1"));
  EXPECT_TRUE(link_->flush(20s));
  EXPECT_LT(link_->unheard_for(), 3s);
  link_.reset();
  server->shutdown();
  EXPECT_EQ(controller_.tasks.back().state(), muster::v1::PROCESS_EXITED);
  EXPECT_GE(controller_.task_streams_opened, 2);
}

TEST_F(Link, FollowsAControllerThatComesBackAtAnotherAddress) {
  const test::TemporaryFolder folder;
  file_ = folder.path() / "musterd.json";
  controller_.set_interval(50ms);
  auto server = rpc::serve(controller_, port_.on("127.0.0.1"));
  start(server->port());
  ASSERT_TRUE(link_->flush(10s));
  server->shutdown();
  link_->tell(task(muster::v1::PROCESS_EXITED));
  EXPECT_FALSE(link_->flush(300ms)) << "the file is not there";
  const test::ClaimedPort another;
  server = rpc::serve(controller_, another.on("127.0.0.1"));
  base::write_file_durably(file_, R"({"advertised":")" + another.on("127.0.0.1") + "\"}");
  EXPECT_TRUE(link_->flush(20s));
  link_.reset();
  server->shutdown();
}

TEST_F(Link, WaitsForNoDiskThatTellsWhereTheControllerIs) {
  const test::TemporaryFolder folder;
  file_ = folder.path() / "standing";
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0) << "nobody ever writes into it";
  controller_.set_interval(50ms);
  auto server = rpc::serve(controller_, port_.on("127.0.0.1"));
  start(server->port());
  ASSERT_TRUE(link_->flush(10s));
  server->shutdown();
  link_->tell(task(muster::v1::PROCESS_EXITED));
  EXPECT_FALSE(link_->flush(300ms));
  server = rpc::serve(controller_, port_.on("127.0.0.1"));
  EXPECT_TRUE(link_->flush(20s));
  link_.reset();
  server->shutdown();
}

}  // namespace
