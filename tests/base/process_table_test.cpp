#include "base/process_table.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"

namespace base {

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

TEST(ProcessTable, TellsWhereAProcessWritesItsOutput) {
  const test::TemporaryFolder folder;
  const auto file = (std::filesystem::canonical(folder.path()) / "log").string();
  const auto child = ::fork();
  if (child == 0) {
    const int log = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ::dup2(log, 2);
    ::dup2(::open("/dev/null", O_WRONLY | O_CLOEXEC), 1);
    ::pause();
    ::_exit(1);
  }
  const std::vector<std::string> expected{"/dev/null", file};
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (outputs_of_process(child) != expected && std::chrono::steady_clock::now() < until) ::usleep(1000);
  EXPECT_EQ(outputs_of_process(child), expected);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(outputs_of_process(child).empty());
}

TEST(ProcessTable, WhatProcessesHaveStartedIsTheirChildrenAndTheSessionsThatTheyLead) {
  const auto process = [](std::int64_t pid, std::int64_t parent, std::int64_t session) {
    return ProcessStat{.pid = pid, .parent = parent, .session = session};
  };
  std::vector<ProcessStat> found{process(10, 1, 10)};
  std::vector<ProcessStat> others{process(13, 12, 5), process(11, 1, 10), process(12, 10, 5), process(14, 1, 5)};
  add_started_by(found, others);
  std::vector<std::int64_t> pids;
  for (const auto& one : found) pids.push_back(one.pid);
  EXPECT_EQ(pids, (std::vector<std::int64_t>{10, 11, 12, 13}));
  ASSERT_EQ(others.size(), 1U);
  EXPECT_EQ(others[0].pid, 14);
}

TEST(ProcessTable, TellsWhetherAProcessDoesSomething) {
  const auto child = ::fork();
  if (child == 0) {
    for (;;) ::usleep(2'000);
  }
  const auto before = context_switches(child);
  ASSERT_TRUE(before);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (context_switches(child) < *before + 5 && std::chrono::steady_clock::now() < until) ::usleep(1000);
  EXPECT_GE(context_switches(child), *before + 5);
  ::kill(child, SIGSTOP);
  while (!read_stat(child)->is_stopped()) ::usleep(1000);
  const auto stopped = context_switches(child);
  ::usleep(20'000);
  EXPECT_EQ(context_switches(child), stopped);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(context_switches(child), std::nullopt);
}

TEST(ProcessTable, ALaterProcessWithTheSameIdIsNotKilled) {
  auto stranger = *read_stat(::getpid());
  ++stranger.start_time;
  kill_exactly(stranger);
}

}  // namespace base
