#include "controller/executors/local/follower.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/protocol/attempt_folder.h"
#include "base/process_table.h"
#include "spec/variables.h"
#include "tests/temporary_folder.h"

namespace executors::local {
namespace {

using ::testing::Contains;
using ::testing::Field;
using ::testing::Not;

TEST(Leftovers, ALaterProcessWithTheSameIdIsNone) {
  const auto own = *base::read_stat(::getpid());
  EXPECT_FALSE(leftovers({base::boot_id(), "", -1, {{own.pid, own.start_time}}}).empty());
  EXPECT_TRUE(leftovers({base::boot_id(), "", -1, {{own.pid, own.start_time + 1}}}).empty());
  EXPECT_TRUE(leftovers({"another boot", "", -1, {{own.pid, own.start_time}}}).empty());
}

/// A shell in a session of its own with the variable of an attempt, and its child, which has another environment.
struct Stranger {
  Stranger() {
    const auto file = (folder / "child").string();
    const auto script = "env -i sleep 1000 & echo $! > " + file + "; wait";
    const char* const environment[] = {"PATH=/usr/bin:/bin", "MUSTER_ATTEMPT_FOLDER=/data/jobs/7/attempt-1", nullptr};
    shell = ::fork();
    if (shell == 0) {
      ::setsid();
      ::execle("/bin/sh", "sh", "-c", script.c_str(), nullptr, environment);
      ::_exit(1);
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!(std::ifstream(file) >> child) && std::chrono::steady_clock::now() < until) ::usleep(1000);
  }
  ~Stranger() {
    ::kill(-shell, SIGKILL);
    ::waitpid(shell, nullptr, 0);
  }
  test::TemporaryFolder folder;
  pid_t shell = 0;
  std::int64_t child = 0;
};

TEST(Leftovers, WhatWasStartedForTheAttemptIsOneInWhateverSessionAndSoAreItsChildren) {
  const auto own = *base::read_stat(::getpid());
  const agent::protocol::Started started{base::boot_id(), "", -1, {{0, own.start_time}}};  // this process is no rank
  const Stranger stranger;
  const auto is = [](std::int64_t pid) { return Field(&base::ProcessStat::pid, pid); };
  EXPECT_THAT(leftovers(started, "/data/jobs/7/attempt-1"), Contains(is(stranger.shell)));
  EXPECT_THAT(leftovers(started, "/data/jobs/7/attempt-1"), Contains(is(stranger.child)));
  EXPECT_THAT(leftovers(started, "/data/jobs/7/attempt-11"), Not(Contains(is(stranger.shell))));
  const agent::protocol::Started later{base::boot_id(), "", -1, {{own.pid, UINT64_MAX}}};
  EXPECT_THAT(leftovers(later, "/data/jobs/7/attempt-1"), Not(Contains(is(stranger.shell)))) << "it began before";
}

// MUSTER_ATTEMPT_FOLDER may be gone, or its name alone or the beginning of its value may be left.
TEST(Leftovers, AProcessThatHasOverwrittenItsEnvironmentIsKnownByTheLogItWritesTo) {
  const test::TemporaryFolder folder;
  const auto attempt = folder / "attempt-1";
  std::filesystem::create_directories(attempt / "logs");
  const auto log = (attempt / "logs" / "rank-0.log").string();
  const auto mark = std::string(spec::variable::kAttemptFolder) + "=";
  const auto own = *base::read_stat(::getpid());
  const agent::protocol::Started started{base::boot_id(), "", -1, {{0, own.start_time}}};
  for (const auto& left : {std::string("x=1"), mark, mark + attempt.string().substr(0, attempt.string().size() - 4)}) {
    const auto renamed = ::fork();
    if (renamed == 0) {
      ::setsid();
      ::dup2(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), 2);
      ::execle("/bin/sleep", "sleep", "600", nullptr, std::array<const char*, 2>{left.c_str(), nullptr}.data());
      ::_exit(1);
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const auto name = [&] { return base::read_stat(renamed).value_or(base::ProcessStat{}).name; };
    while (name() != "sleep" && std::chrono::steady_clock::now() < until) ::usleep(1000);
    const auto is_it = Field(&base::ProcessStat::pid, std::int64_t{renamed});
    EXPECT_THAT(leftovers(started, attempt.string()), Contains(is_it)) << left;
    EXPECT_THAT(leftovers(started, (folder / "attempt-2").string()), Not(Contains(is_it))) << left;
    ::kill(renamed, SIGKILL);
    ::waitpid(renamed, nullptr, 0);
  }
}

// The kernel may refuse a descriptor at any moment, also to the thread in which all attempts are followed.
TEST(Following, GoesOnWhenTheKernelCannotBeAsked) {
  const test::TemporaryFolder folder;
  const auto rank = ::fork();
  if (rank == 0) {
    for (;;) ::pause();
  }
  const agent::protocol::Started started{
      base::boot_id(), "node", -1, {{rank, base::read_stat(rank).value().start_time}}};
  std::ofstream(folder / "status.jsonl") << agent::protocol::to_line(started);
  const auto opened = agent::protocol::open_folder(folder.path());
  auto lock = agent::protocol::try_lock(opened.get());
  ASSERT_TRUE(lock);
  boost::asio::io_context io;
  common::Errands disk(true);
  std::vector<core::EventBody> told;
  bool is_over = false;
  const auto follower = std::make_shared<Follower>(
      io, disk, core::AttemptKey{1, 1}, folder.path(), std::set<core::RankNumber>{},
      Follower::Listener{[&](core::EventBody fact) { told.push_back(std::move(fact)); }, [&] { is_over = true; }});
  follower->begin(std::chrono::milliseconds(10));
  std::promise<void> looked;  // behind the follower's errand, in the same thread
  disk.run([&] { looked.set_value(); }, core::Millis(0));
  looked.get_future().wait();
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{0, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  io.run_for(std::chrono::milliseconds(100));
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(told.empty());
  std::ofstream(folder / "status.jsonl", std::ios::app)
      << agent::protocol::to_line(agent::protocol::Exited{0, {3, 0}, false, 5, ""})
      << agent::protocol::to_line(agent::protocol::Ended{});
  lock.reset();
  for (int i = 0; i < 200 && !is_over; ++i) io.run_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(is_over);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<core::RankExited>(told[0]));
  ::kill(rank, SIGKILL);
  ::waitpid(rank, nullptr, 0);
}

}  // namespace
}  // namespace executors::local
