// Goal: `muster list -w` and `muster top` on a terminal show the newest, even in a small window.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "tests/cli/fake_controller.h"
#include "tests/places.h"

namespace test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A `muster` on a terminal.
class OnTerminal {
 public:
  OnTerminal(const FakeController& fake, std::vector<std::string> arguments, winsize size) {
    arguments.insert(arguments.begin(), ::test::built_program("muster"));
    std::vector<std::string> variables{"TERM=xterm", "NO_COLOR=1"};
    for (const auto& [name, value] : fake.environment()) {
      if (name != "COLUMNS") variables.push_back(name + "=" + value);
    }
    const auto pointers = [](std::vector<std::string>& texts) {
      std::vector<char*> out;
      for (auto& text : texts) out.push_back(text.data());
      out.push_back(nullptr);
      return out;
    };
    const auto argv = pointers(arguments), envp = pointers(variables);
    pid_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    if (pid_ == 0) {
      ::execve(argv[0], argv.data(), envp.data());
      ::_exit(127);
    }
  }
  ~OnTerminal() {
    if (pid_ > 0) ::kill(pid_, SIGINT);
    end();
    ::close(terminal_);
  }

  void type(const std::string& keys) const {
    ASSERT_EQ(::write(terminal_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  /// Waits for the end of the program. Its exit code.
  int end() {
    int code = 0;
    if (pid_ > 0) ::waitpid(std::exchange(pid_, -1), &code, 0);
    return WIFEXITED(code) ? WEXITSTATUS(code) : -1;
  }
  /// True if the terminal shows what is typed.
  bool echoes() const {
    termios now{};
    return ::tcgetattr(terminal_, &now) == 0 && (now.c_lflag & ECHO) != 0;
  }

  /// The screen, once a whole frame that ends with `end` has come.
  std::string screen(const std::string& end) {
    static const std::string kClear = "\x1b[H\x1b[J";
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (std::chrono::steady_clock::now() < deadline) {
      pollfd ready{terminal_, POLLIN, 0};
      char bytes[4096];
      if (::poll(&ready, 1, 100) > 0) {
        const auto got = ::read(terminal_, bytes, sizeof bytes);
        if (got <= 0) break;
        said_.append(bytes, static_cast<std::size_t>(got));
      }
      const auto frame = said_.rfind(kClear);
      if (frame != std::string::npos && said_.ends_with(end + "\r\n")) return said_.substr(frame + kClear.size());
    }
    return said_;
  }

 private:
  int terminal_ = -1;
  pid_t pid_ = -1;
  std::string said_;
};

TEST(Watch, KeepsTheHeaderAndTheNewestRowsOnASmallScreen) {
  FakeController fake;
  fake.with([](FakeState& s) {
    for (std::int64_t id = 1; id <= 30; ++id) s.jobs.push_back(sample_job(id, "running"));
    for (auto& job : s.jobs) job.set_name("name-" + std::to_string(job.id()) + ".");
  });
  OnTerminal list(fake, {"list", "-w"}, {10, 100, 0, 0});
  const auto screen = list.screen("the newest 7 of 30 jobs; a taller window shows more, --state selects");
  EXPECT_THAT(screen,
              AllOf(HasSubstr("ID  NAME"), HasSubstr("name-30."), HasSubstr("name-24."), Not(HasSubstr("name-23."))));
  EXPECT_EQ(std::ranges::count(screen, '\n'), 9) << "and the cursor below them:\n" << screen;
}

TEST(Watch, ShowsEveryRowWhereThereIsRoom) {
  FakeController fake;
  fake.with([](FakeState& s) {
    for (std::int64_t id = 1; id <= 8; ++id) s.jobs.push_back(sample_job(id, "running"));
    for (auto& job : s.jobs) job.set_reason("reason-" + std::to_string(job.id()) + ".");
  });
  OnTerminal list(fake, {"list", "-w"}, {10, 140, 0, 0});
  EXPECT_THAT(list.screen("reason-1."), AllOf(HasSubstr("ID  NAME"), HasSubstr("reason-8.")));
}

TEST(Top, IsShownAgainOnATerminalUntilAKeyEndsIt) {
  FakeController fake;
  fake.with([](FakeState& s) {
    for (std::int64_t id = 1; id <= 8; ++id) s.jobs.push_back(sample_job(id, "running"));
  });
  OnTerminal top(fake, {"top"}, {10, 140, 0, 0});
  const auto screen = top.screen("7 of 16 ranks; a taller window shows more, --sort chooses which");
  EXPECT_THAT(screen, AllOf(HasSubstr("CORES"), HasSubstr("GPU%")));
  EXPECT_FALSE(top.echoes());
  fake.with([](FakeState& s) { s.jobs.clear(); });
  top.screen("no job runs");
  top.type("q");
  EXPECT_EQ(top.end(), 0);
  EXPECT_TRUE(top.echoes()) << "the terminal is as it was";
}

TEST(Top, EndsWithCtrlC) {
  FakeController fake;
  OnTerminal top(fake, {"top"}, {10, 140, 0, 0});
  top.screen("no job runs");
  top.type("\x03");
  EXPECT_EQ(top.end(), 130);
  EXPECT_TRUE(top.echoes());
}

TEST(List, TellsOfItsLimitOnlyWhereNobodyAskedForIt) {
  FakeController fake;
  fake.with([](FakeState& s) {
    for (std::int64_t id = 1; id <= 120; ++id) s.jobs.push_back(sample_job(id, "succeeded"));
  });
  EXPECT_THAT(fake.muster({"list"}).err, HasSubstr("the newest 100 of 120 jobs; --limit shows more"));
  EXPECT_EQ(fake.muster({"list", "--limit", "1"}).err, "");
}

}  // namespace
}  // namespace test
