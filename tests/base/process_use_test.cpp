#include "base/process_use.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/temporary_folder.h"

// Present in a program that ThreadSanitizer watches.
extern "C" void __tsan_init() __attribute__((weak));

namespace base {
namespace {

using namespace std::chrono_literals;

/// A folder like /proc, whose processes a test makes up.
class FakeProc {
 public:
  struct Process {
    int pid = 0, parent = 0, group = 0, start_time = 0;
    int own_ticks = 0, waited_ticks = 0, pages = 1;
    char state = 'S';
  };
  void put(const Process& process) {
    const auto text = std::to_string(process.pid) + " (a) b (c) " + process.state + " " +
                      std::to_string(process.parent) + " " + std::to_string(process.group) + " 1 0 -1 4 1 2 3 4 " +
                      std::to_string(process.own_ticks - 1) + " 1 " + std::to_string(process.waited_ticks) +
                      " 0 20 0 1 0 " + std::to_string(process.start_time) + " 999 " + std::to_string(process.pages) +
                      " 18446744073709551615 1 2\n";
    test::write_file(folder_ / std::to_string(process.pid) / "stat", text);
  }
  void put_proportional(int pid, int kilobytes) {
    test::write_file(folder_ / std::to_string(pid) / "smaps_rollup",
                     "5557-7ffc ---p 00000000 00:00 0  [rollup]\nRss:  1772 kB\nPss:  " + std::to_string(kilobytes) +
                         " kB\nPss_Dirty: 1 kB\n");
  }
  void end(int pid) { std::filesystem::remove_all(folder_ / std::to_string(pid)); }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  test::TemporaryFolder folder_;
};

TEST(ProcessTable, LeavesOutAProcessThatTheKernelHides) {
  using std::filesystem::perms;
  FakeProc proc;
  proc.put({.pid = 7, .parent = 1, .group = 7});
  proc.put({.pid = 8, .parent = 1, .group = 8});
  for (const auto* path : {"", "7", "7/stat", "8"}) std::filesystem::permissions(proc.path() / path, perms::all);
  std::filesystem::permissions(proc.path() / "8/stat", perms::none);
  struct Back {
    ~Back() { ::setfsuid(::geteuid()); }
  } back;
  ::setfsuid(65534);  // root may read every file
  if (::access(proc.path().parent_path().c_str(), X_OK) != 0 || ::setfsuid(-1) == 0) GTEST_SKIP() << "still root";
  const auto seen = all_processes(proc.path());
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen.front().pid, 7);
}

/// The rank is process 10 of group 10.
class ProcessUseOfARank : public ::testing::Test {
 protected:
  ProcessUse look(std::chrono::milliseconds later) {
    now_ += later;
    const auto use = meter_.look(all_processes(proc_.path(), true), now_);
    EXPECT_TRUE(use);
    return use.value_or(ProcessUse{});
  }
  /// Clock ticks of so many seconds.
  static int ticks(double seconds) { return static_cast<int>(seconds * static_cast<double>(::sysconf(_SC_CLK_TCK))); }
  static std::int64_t pages(int count) { return count * ::sysconf(_SC_PAGESIZE); }

  FakeProc proc_;
  ProcessUseMeter meter_{10, proc_.path()};
  ProcessUseMeter::Time now_ = ProcessUseMeter::Time{} + 1h;
};

TEST_F(ProcessUseOfARank, IsCpuTimeOverTheTimeBetweenTwoLooks) {
  proc_.put({.pid = 10, .parent = 2, .group = 10, .own_ticks = 1000, .pages = 25});
  const auto first = look(0s);
  EXPECT_FALSE(first.cores) << "of one moment nothing is known";
  EXPECT_EQ(first.memory_bytes, pages(25));
  proc_.put({.pid = 10, .parent = 2, .group = 10, .own_ticks = 1000 + ticks(3.4), .pages = 5});
  const auto second = look(2s);
  EXPECT_DOUBLE_EQ(second.cores.value(), 1.7);
  EXPECT_EQ(second.memory_bytes, pages(5));
  EXPECT_EQ(second.memory_peak_bytes, pages(25));
}

TEST_F(ProcessUseOfARank, IsThatOfItsGroupAndOfAllItsChildren) {
  proc_.put({.pid = 10, .parent = 2, .group = 10});
  proc_.put({.pid = 11, .parent = 10, .group = 11});
  proc_.put({.pid = 12, .parent = 11, .group = 12});
  proc_.put({.pid = 13, .parent = 2, .group = 10});
  proc_.put({.pid = 20, .parent = 2, .group = 20});
  proc_.put({.pid = 2, .parent = 1, .group = 2});
  EXPECT_EQ(look(0s).processes, 4U);
  for (const int pid : {2, 11, 12, 20}) {
    const int group = pid;
    const int parent = pid == 2 ? 1 : pid == 20 ? 2 : pid - 1;
    proc_.put({.pid = pid, .parent = parent, .group = group, .own_ticks = ticks(1)});
  }
  EXPECT_DOUBLE_EQ(look(1s).cores.value(), 2);
}

TEST_F(ProcessUseOfARank, KeepsADaemonThatItHasStarted) {
  proc_.put({.pid = 10, .parent = 2, .group = 10});
  proc_.put({.pid = 11, .parent = 10, .group = 11, .start_time = 5});
  EXPECT_EQ(look(0s).processes, 2U);
  proc_.put({.pid = 11, .parent = 1, .group = 11, .start_time = 5});
  EXPECT_EQ(look(1s).processes, 2U);
  proc_.put({.pid = 11, .parent = 1, .group = 11, .start_time = 6});
  EXPECT_EQ(look(1s).processes, 1U) << "a later process with the same id";
}

TEST_F(ProcessUseOfARank, IsNotCountedAgainWhereAParentHasWaitedForAChild) {
  proc_.put({.pid = 10, .parent = 2, .group = 10});
  proc_.put({.pid = 11, .parent = 10, .group = 10, .own_ticks = ticks(50)});
  look(0s);
  proc_.end(11);
  proc_.put({.pid = 10, .parent = 2, .group = 10, .waited_ticks = ticks(51)});
  EXPECT_DOUBLE_EQ(look(1s).cores.value(), 1) << "of the child's 51 s one came since";
}

TEST_F(ProcessUseOfARank, FollowsTheTimeOfTheDeadToWhoeverIsLeft) {
  proc_.put({.pid = 10, .parent = 2, .group = 10});
  proc_.put({.pid = 11, .parent = 10, .group = 10, .own_ticks = ticks(20)});
  proc_.put({.pid = 12, .parent = 11, .group = 10, .own_ticks = ticks(30)});
  look(0s);
  proc_.end(11);
  proc_.end(12);
  proc_.put({.pid = 10, .parent = 2, .group = 10, .waited_ticks = ticks(52)});
  EXPECT_DOUBLE_EQ(look(1s).cores.value(), 2);
}

TEST_F(ProcessUseOfARank, IsNeverNegativeWhenAProcessEnds) {
  proc_.put({.pid = 10, .parent = 2, .group = 10});
  proc_.put({.pid = 11, .parent = 10, .group = 10, .own_ticks = ticks(500)});
  look(0s);
  proc_.end(11);  // and nobody waits for it
  proc_.put({.pid = 10, .parent = 2, .group = 10, .own_ticks = ticks(1)});
  EXPECT_DOUBLE_EQ(look(1s).cores.value(), 1);
}

TEST_F(ProcessUseOfARank, CountsProcessesThatLivedBetweenTwoLooks) {
  proc_.put({.pid = 10, .parent = 2, .group = 10, .waited_ticks = ticks(7)});
  look(0s);
  proc_.put({.pid = 10, .parent = 2, .group = 10, .waited_ticks = ticks(10)});
  EXPECT_DOUBLE_EQ(look(1s).cores.value(), 3);
}

TEST_F(ProcessUseOfARank, CountsAPageThatProcessesShareOnce) {
  proc_.put({.pid = 10, .parent = 2, .group = 10, .pages = 100});
  proc_.put({.pid = 11, .parent = 10, .group = 10, .pages = 100});
  proc_.put_proportional(10, static_cast<int>(pages(50) / 1024));
  proc_.put_proportional(11, static_cast<int>(pages(50) / 1024));
  EXPECT_EQ(look(0s).memory_bytes, pages(100));
  proc_.end(11);
  EXPECT_EQ(look(1s).memory_bytes, pages(100)) << "all its pages are its own now";
}

TEST_F(ProcessUseOfARank, IsResidentMemoryWhereTheKernelTellsNoShares) {
  proc_.put({.pid = 10, .parent = 2, .group = 10, .pages = 3});
  proc_.put({.pid = 11, .parent = 10, .group = 10, .pages = 4});
  EXPECT_EQ(look(0s).memory_bytes, pages(7));
}

TEST_F(ProcessUseOfARank, EndsWithItsLastProcess) {
  proc_.put({.pid = 20, .parent = 2, .group = 20});
  EXPECT_FALSE(meter_.look(all_processes(proc_.path(), true), now_));
}

TEST_F(ProcessUseOfARank, OutlivesALineThatMakesNoSense) {
  proc_.put({.pid = 10, .parent = 2, .group = 10});
  test::write_file(proc_.path() / "11" / "stat", "11 (cut of");
  test::write_file(proc_.path() / "12" / "stat", "");
  proc_.put({.pid = 13, .parent = 14, .group = 1});
  proc_.put({.pid = 14, .parent = 13, .group = 1});  // read at two moments, each seems to be the other's child
  EXPECT_EQ(look(0s).processes, 1U);
  EXPECT_THROW(all_processes(proc_.path()), std::runtime_error) << "who asks whether something is left must know";
}

/// A child in a group of its own, killed at the end.
class Child {
 public:
  explicit Child(void (*work)()) : pid_(::fork()) {
    if (pid_ == 0) {
      ::setpgid(0, 0);
      work();
      ::_exit(0);
    }
    ::setpgid(pid_, pid_);
  }
  ~Child() {
    ::kill(-pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

void burn() {
  ::alarm(30);
  volatile int turns = 0;
  for (;;) turns = turns + 1;
}
void hold() {
  ::alarm(30);
  const std::vector<char> block(100'000'000, 'x');
  ::pause();
}

/// ThreadSanitizer keeps four bytes of its own for each byte of a program.
int shadow() {
  return __tsan_init != nullptr ? 5 : 1;
}

// Goal: real processes are told apart.
TEST(ProcessUse, TellsABusyProcessFromOneThatHoldsMemory) {
  const Child busy(burn), big(hold);
  ProcessUseMeter of_busy(busy.pid()), of_big(big.pid());
  const auto now = [] { return ProcessUseMeter::Time::clock::now(); };
  // The machine may be busy otherwise, so the test goes by what the kernel has given the child, not by the clock.
  for (const auto give_up = now() + 20s;; std::this_thread::sleep_for(300ms)) {
    const auto all = all_processes("/proc");
    const auto first = of_busy.look(all, now()), second = of_big.look(all, now());
    ASSERT_TRUE(first && second);
    if (first->cores && *first->cores > 0.06 && *second->cores < 0.03 && second->memory_bytes > 100'000'000) {
      EXPECT_LT(*first->cores, 1.5);
      EXPECT_LT(first->memory_bytes, shadow() * 50'000'000);
      EXPECT_LT(second->memory_bytes, shadow() * 150'000'000);
      return;
    }
    ASSERT_LT(now(), give_up);
  }
}

}  // namespace
}  // namespace base
