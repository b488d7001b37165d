// Goal: an agent has a stack of each rank, whatever the rank does, and harms none.
// Method: real processes of this machine; programs of Python with the package's own module; a py-spy of the test.
#include "agent/stacks/take.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "agent/protocol/files.h"
#include "base/command.h"
#include "base/process_table.h"
#include "tests/places.h"
#include "tests/temporary_folder.h"

namespace agent::stacks {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

/// A program that says "ready" when it stands where the test wants it. Ended with the object.
class Program {
 public:
  explicit Program(std::vector<std::string> argv, std::vector<std::pair<std::string, std::string>> environment = {})
      : child_(base::start_child({.argv = std::move(argv), .environment = std::move(environment)}, true, 0)) {
    EXPECT_EQ(child_.why_not, "");
  }
  ~Program() {
    ::kill(-child_.pid, SIGKILL);
    ::waitpid(child_.pid, nullptr, 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return child_.pid; }
  bool wait_for(const std::string& word) {
    std::string said;
    for (int i = 0; i < 2000 && said.find(word) == std::string::npos; ++i) {
      char part[256];
      const auto count = ::read(child_.out.get(), part, sizeof part);
      if (count > 0) said.append(part, static_cast<std::size_t>(count));
      if (count <= 0) std::this_thread::sleep_for(5ms);
    }
    return said.find(word) != std::string::npos;
  }
  bool lives() const { return ::waitpid(child_.pid, nullptr, WNOHANG) == 0; }

 private:
  base::Child child_;
};

Program python(const std::string& text) {
  const std::string begin = "import sys, os, time; sys.path.insert(0, " +
                            std::string("'" + ::test::source_folder() + "/python')") +
                            "; from muster import _stack; assert _stack.offer()\n";
  return Program({"python3", "-B", "-c", begin + text}, {{"MUSTER_ATTEMPT_FOLDER", "/some/attempt"}});
}

/// Waits until the process, which then sleeps, and those that it has started run these programs, nearest to it first.
bool runs(pid_t pid, const std::vector<std::string>& programs) {
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::string> now;
    const auto processes = with_descendants(pid, base::all_processes());
    for (const auto& process : processes) now.push_back(process.name);
    if (now == programs && processes.front().state == 'S') return true;
    std::this_thread::sleep_for(5ms);
  }
  return false;
}

std::string stack_of(pid_t pid) {
  return take_stacks({{0, pid}}).front();
}

TEST(Stacks, OfAProgramThatWritesItsOwnHasItsFrames) {
  auto program = python("def trains():\n  print('ready', flush=True)\n  time.sleep(60)\ntrains()\n");
  ASSERT_TRUE(program.wait_for("ready"));
  for (int round = 0; round < 2; ++round) {
    const auto text = stack_of(program.pid());
    EXPECT_THAT(text, StartsWith("== process " + std::to_string(program.pid()) + " ("));
    EXPECT_THAT(text, HasSubstr("python3 -B -c import sys"));
    EXPECT_THAT(text, ContainsRegex("== frames of Python, by its faulthandler\n(Current t|T)hread "));
    EXPECT_THAT(text, ContainsRegex("File \"<string>\", line [0-9]+ in trains\n"));
    EXPECT_THAT(text, ContainsRegex("== state of each thread, by the kernel\nthread [0-9]+ python3: sleeps, in "));
    EXPECT_EQ(text.find("in trains"), text.rfind("in trains")) << "of this moment alone";
  }
  EXPECT_TRUE(program.lives());
}

TEST(Stacks, OfAProgramWhoseInterpretersLockIsKeptHasItsFramesToo) {
  auto program =
      python("import ctypes\ndef keeps():\n  print('ready', flush=True)\n  ctypes.PyDLL(None).sleep(60)\nkeeps()\n");
  ASSERT_TRUE(program.wait_for("ready"));
  std::this_thread::sleep_for(200ms);  // it gets to its place
  EXPECT_THAT(stack_of(program.pid()), HasSubstr(" in keeps\n"));
  EXPECT_TRUE(program.lives());
}

TEST(Stacks, OfAStoppedProgramIsWhatTheKernelTells) {
  auto program = python("print('ready', flush=True); time.sleep(60)\n");
  ASSERT_TRUE(program.wait_for("ready"));
  ::kill(program.pid(), SIGSTOP);
  while (base::read_stat(program.pid())->state != 'T') std::this_thread::sleep_for(1ms);
  const auto began = std::chrono::steady_clock::now();
  EXPECT_THAT(stack_of(program.pid()),
              AllOf(HasSubstr("python3: is stopped by a signal, "), Not(HasSubstr("frames of Python"))));
  EXPECT_LT(std::chrono::steady_clock::now() - began, 1s);
}

TEST(Stacks, OfAnyProgramIsItsSystemCallWithTheFileBehindIt) {
  Program program({"sh", "-c", "echo ready; exec cat /dev/zero > /dev/null & exec sleep 1000 < /dev/null"});
  ASSERT_TRUE(program.wait_for("ready"));
  ASSERT_TRUE(runs(program.pid(), {"sleep", "cat"})) << "the shell is neither at first";
  const auto text = stack_of(program.pid());
  EXPECT_THAT(text, ContainsRegex("sleep: sleeps, in (clock_nanosleep|nanosleep|restart_syscall)"));
  EXPECT_THAT(text, HasSubstr("(cat /dev/zero) == state of each thread")) << "what it has started belongs to it";
  EXPECT_TRUE(program.lives()) << "nobody who has no handler is asked";
}

TEST(Stacks, OfForkedChildrenAreNotAskedFor) {
  auto program = python(
      "def loads():\n  time.sleep(60)\n"
      "if os.fork() == 0:\n  loads()\n"
      "print('ready', flush=True)\ntime.sleep(60)\n");
  ASSERT_TRUE(program.wait_for("ready"));
  const auto text = stack_of(program.pid());
  EXPECT_THAT(text, Not(HasSubstr("in loads")));
  const auto processes = with_descendants(program.pid(), base::all_processes());
  ASSERT_EQ(processes.size(), 2U);
  EXPECT_FALSE(stack_memory(static_cast<pid_t>(processes[1].pid)));
  EXPECT_FALSE(base::read_stat(processes[1].pid)->is_dead());
}

TEST(Stacks, AProgramWithoutItsOwnIsReadByPySpyOfItsPath) {
  const test::TemporaryFolder folder;
  // A program of this name counts as Python.
  std::filesystem::copy_file("/bin/sleep", folder / "python3.99");
  test::write_file(
      folder / "py-spy",
      "#!/bin/sh\necho \"Process $3: python3\"\necho 'Thread 1 (idle): \"MainThread\"'\necho '    f (a.py:1)'\n");
  std::filesystem::permissions(folder / "py-spy", std::filesystem::perms::owner_all);
  const Program program({folder / "python3.99", "1000"}, {{"PATH", folder.path().string() + ":/usr/bin:/bin"}});
  EXPECT_THAT(stack_of(program.pid()),
              HasSubstr("== frames of Python, by py-spy\nProcess " + std::to_string(program.pid()) + ": python3\n"));
}

TEST(Stacks, APySpyThatHangsIsGivenUp) {
  const test::TemporaryFolder folder;
  std::filesystem::copy_file("/bin/sleep", folder / "python3.99");
  test::write_file(folder / "py-spy", "#!/bin/sh\necho 'Thread 1'\nexec sleep 1000\n");
  std::filesystem::permissions(folder / "py-spy", std::filesystem::perms::owner_all);
  const Program program({folder / "python3.99", "1000"}, {{"PATH", folder.path().string() + ":/usr/bin:/bin"}});
  const auto began = std::chrono::steady_clock::now();
  const auto text = take_stacks({{0, program.pid()}}, {.own = 100ms, .other = 300ms}).front();
  EXPECT_LT(std::chrono::steady_clock::now() - began, 5s);
  EXPECT_THAT(text, AllOf(Not(HasSubstr("py-spy\n")), HasSubstr("by the kernel")));
}

TEST(Stacks, ATextIsBoundedAndPlain) {
  auto program = python(
      "import threading\n"
      "exec('def ' + 'x' * 400 + '(n):\\n  return time.sleep(60) if n == 0 else ' + 'x' * 400 + '(n - 1)')\n"
      "for _ in range(60): threading.Thread(target=globals()['x' * 400], args=(90,), daemon=True).start()\n"
      "sys.argv[0]\nprint('ready', flush=True); time.sleep(60)\n");
  ASSERT_TRUE(program.wait_for("ready"));
  std::this_thread::sleep_for(200ms);  // the threads get to their places
  const auto text = stack_of(program.pid());
  EXPECT_LE(text.size(), protocol::kMostStackBytes);
  EXPECT_TRUE(text.ends_with(protocol::kStackCut));
}

TEST(Stacks, OfARankWithoutProcessIsEmpty) {
  pid_t gone = 0;
  {
    const Program program({"true"});
    gone = program.pid();
  }
  EXPECT_EQ(stack_of(gone), "");
}

TEST(KernelThreads, NameTheirSystemCalls) {
  int descriptor = 0;
  EXPECT_EQ(syscall_text("running", descriptor), "");
  EXPECT_EQ(syscall_text("-1 0x7ffd 0x7f12", descriptor), "in no system call");
  EXPECT_EQ(syscall_text(std::to_string(SYS_read) + " 0x7 0x1 0x2 0x0 0x0 0x0 0x1 0x2", descriptor), "in read of 7");
  EXPECT_EQ(descriptor, 7);
  EXPECT_EQ(syscall_text(std::to_string(SYS_futex) + " 0x7 0x1 0x2", descriptor), "in futex");
  EXPECT_EQ(descriptor, -1);
  EXPECT_EQ(syscall_text("99999 0x7", descriptor), "in call 99999");
  EXPECT_EQ(syscall_text("", descriptor), "");
  EXPECT_EQ(syscall_text("what", descriptor), "");
}

TEST(Taker, AnswersANumberOnceAndTheNewest) {
  std::mutex mutex;
  std::condition_variable news;
  std::map<std::uint64_t, int> kept;
  const Program program({"sleep", "1000"});
  Taker taker([&](std::uint64_t number, std::uint32_t rank, const std::string& text) {
    EXPECT_EQ(rank, 3U);
    EXPECT_THAT(text, HasSubstr("by the kernel"));
    std::lock_guard lock(mutex);
    ++kept[number];
    news.notify_all();
  });
  const auto wait_for = [&](std::uint64_t number) {
    std::unique_lock lock(mutex);
    return news.wait_for(lock, 20s, [&] { return kept.contains(number); });
  };
  taker.ask(5, {{3, program.pid()}});
  ASSERT_TRUE(wait_for(5));
  taker.ask(5, {{3, program.pid()}});
  taker.ask(4, {{3, program.pid()}});
  taker.ask(6, {{3, program.pid()}});
  ASSERT_TRUE(wait_for(6));
  std::lock_guard lock(mutex);
  EXPECT_EQ(kept.at(5), 1);
  EXPECT_FALSE(kept.contains(4));
}

}  // namespace
}  // namespace agent::stacks
