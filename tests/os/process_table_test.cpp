#include "os/process_table.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace os {

TEST(ProcessTable, KnowsThisProcess) {
  const auto all = all_processes();
  EXPECT_TRUE(std::ranges::any_of(all, [](const auto& each) { return each.pid == ::getpid() && !each.is_dead(); }));
  EXPECT_FALSE(boot_id().empty());
}

TEST(ProcessTable, TellsWhatAProcessWasStartedWith) {
  const char* const environment[] = {"NOT_ONE=1", "ONE=a b=c", "EMPTY=", nullptr};
  const auto child = ::fork();
  if (child == 0) {
    ::execle("/bin/sleep", "sleep", "1000", nullptr, environment);
    ::_exit(1);
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!variable_of_process(child, "NOT_ONE") && std::chrono::steady_clock::now() < until) ::usleep(1000);
  EXPECT_EQ(variable_of_process(child, "ONE"), "a b=c");
  EXPECT_EQ(variable_of_process(child, "EMPTY"), "");
  EXPECT_EQ(variable_of_process(child, "NE"), std::nullopt);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(variable_of_process(child, "ONE"), std::nullopt) << "it is gone";
}

TEST(ProcessTable, ALaterProcessWithTheSameIdIsNotKilled) {
  auto stranger = *read_stat(::getpid());
  ++stranger.start_time;
  kill_exactly(stranger);
}

}  // namespace os
