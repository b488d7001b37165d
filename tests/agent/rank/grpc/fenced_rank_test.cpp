#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "controller/rpc/rpc_server.h"
#include "tests/controller/rpc/fake_controller.h"
#include "tests/places.h"

namespace {

using rpc::testing::FakeController;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

class Child {
 public:
  explicit Child(int port) {
    std::vector<std::string> variables = {"RANK=0",
                                          "WORLD_SIZE=1",
                                          "MUSTER_CONTROLLER=127.0.0.1:" + std::to_string(port),
                                          "MUSTER_JOB_ID=1",
                                          "MUSTER_ATTEMPT=1",
                                          "http_proxy=http://192.0.2.1:3128",
                                          std::string("MUSTER_RANK_TOKEN=") + FakeController::kRankToken};
    std::vector<char*> environment;
    for (auto& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    std::string program = ::test::built_program("stuck_rank");
    char* arguments[] = {program.data(), nullptr};
    if (::posix_spawn(&pid_, program.c_str(), nullptr, nullptr, arguments, environment.data()) != 0) pid_ = -1;
  }
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }

  /// Its wait status; -1 if it is still there after `limit`.
  int wait(std::chrono::milliseconds limit) {
    int status = -1;
    for (const auto until = Clock::now() + limit; Clock::now() < until; std::this_thread::sleep_for(5ms)) {
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = 0;
        return status;
      }
    }
    return -1;
  }

 private:
  pid_t pid_ = -1;
};

// Goal: a rank of an attempt that is over does not linger, even in a collective that never returns.
// Method: a real process that waits for ever, told to stop.
TEST(FencedRank, AStuckProcessEndsWithTheFencedCodeWithinTwoSeconds) {
  FakeController controller;
  const auto server = rpc::serve(controller, "127.0.0.1:0");
  Child child(server->port());
  ASSERT_TRUE(controller.wait_until([](const auto& c) { return c.heartbeats.contains(0); }));
  const auto told = Clock::now();
  controller.set_directive(muster::v1::DIRECTIVE_STOP);
  const int status = child.wait(10s);
  const auto took = Clock::now() - told;
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 94);
  EXPECT_GE(took, 900ms) << "it has a second to leave by itself";
  EXPECT_LT(took, 2s);
}

TEST(FencedRank, ARankThatIsFencedAtItsFirstWordEndsToo) {
  FakeController controller;
  controller.set_directive(muster::v1::DIRECTIVE_STOP);
  const auto server = rpc::serve(controller, "127.0.0.1:0");
  Child child(server->port());
  const int status = child.wait(10s);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 94);
}

}  // namespace
