// Goal: nothing of an earlier attempt runs beside a later one, nothing of others is ended, and what cannot be ended is
// told.
// Method: real processes with the environments and outputs that ranks leave behind.
#include "agent/process/orphans.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "tests/temporary_folder.h"

namespace agent::process {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

class Orphans : public testing::Test {
 protected:
  Orphans() {
    for (int attempt = 1; attempt <= 3; ++attempt) fs::create_directories(fs::path(folder_of(attempt)) / "logs");
  }
  ~Orphans() override {
    for (const auto pid : started_) ::kill(pid, SIGKILL);
    for (const auto pid : started_) ::waitpid(pid, nullptr, 0);
  }
  std::string folder_of(int attempt) const { return (folder_ / "7").string() + "/attempt-" + std::to_string(attempt); }

  /// A process in a session of its own with these variables alone, whose output goes into this file. It waits until the
  /// program is executed.
  pid_t leave(const std::vector<std::string>& variables, const std::string& output = "/dev/null") {
    const auto ready = (folder_ / ("ready-" + std::to_string(started_.size()))).string();
    const auto script = "env -i /bin/sleep 1000 & echo $! > " + ready + "; wait";
    std::vector<char*> environment;
    for (const auto& one : variables) environment.push_back(const_cast<char*>(one.c_str()));
    environment.push_back(nullptr);
    const auto pid = ::fork();
    if (pid == 0) {
      ::setsid();
      const int file = ::open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      ::dup2(file, 1);
      ::dup2(file, 2);
      const char* const words[] = {"sh", "-c", script.c_str(), nullptr};
      ::execve("/bin/sh", const_cast<char**>(words), environment.data());
      ::_exit(1);
    }
    started_.push_back(pid);
    pid_t child = 0;
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (!(std::ifstream(ready) >> child) && std::chrono::steady_clock::now() < until) ::usleep(1000);
    EXPECT_GT(child, 1);
    children_.push_back(child);
    return pid;
  }
  pid_t leave_of(int attempt, const std::vector<std::string>& more = {}) {
    std::vector<std::string> variables{"MUSTER_ATTEMPT_FOLDER=" + folder_of(attempt),
                                       "MUSTER_ATTEMPT=" + std::to_string(attempt)};
    variables.insert(variables.end(), more.begin(), more.end());
    return leave(variables);
  }
  static bool is_alive(pid_t pid) {
    const auto stat = base::read_stat(pid);
    return stat && !stat->is_dead();
  }
  std::string end_earlier(std::chrono::milliseconds patience = 20s, const Kill& kill = base::kill_exactly) {
    return end_earlier_attempts({folder_of(2), 2}, patience, kill);
  }

  test::TemporaryFolder folder_;
  std::vector<pid_t> started_, children_;  // the same place: the shell and its child
};

TEST_F(Orphans, OfEarlierAttemptsAreEndedWithWhatTheyHaveStarted) {
  const auto earlier = leave_of(1), own = leave_of(2), later = leave_of(3);
  EXPECT_EQ(end_earlier(), "");
  EXPECT_FALSE(is_alive(earlier));
  EXPECT_FALSE(is_alive(children_[0])) << "its environment is another";
  EXPECT_TRUE(is_alive(own));
  EXPECT_TRUE(is_alive(later));
}

TEST_F(Orphans, ThatHaveOverwrittenTheirEnvironmentAreKnownByTheLogTheyWriteTo) {
  const auto renamed = leave({"PATH=/usr/bin:/bin"}, folder_of(1) + "/logs/rank-0.log");
  const auto in_part = leave({"MUSTER_ATTEMPT_FOLDER=" + folder_.path().string()}, folder_of(1) + "/logs/rank-12.log");
  const auto own = leave({"PATH=/usr/bin:/bin"}, folder_of(2) + "/logs/rank-0.log");
  const auto reader = leave({"PATH=/usr/bin:/bin"}, folder_of(1) + "/logs/mine.txt");
  EXPECT_EQ(end_earlier(), "");
  EXPECT_FALSE(is_alive(renamed));
  EXPECT_FALSE(is_alive(in_part));
  EXPECT_TRUE(is_alive(own));
  EXPECT_TRUE(is_alive(reader));
}

TEST_F(Orphans, OfAJobThatARankHasSubmittedAreNone) {
  const auto submitted = leave_of(1, {"MUSTER_SLURM_JOB=1", "SLURM_JOB_ID=2"});
  const auto earlier = leave_of(1, {"MUSTER_SLURM_JOB=1", "SLURM_JOB_ID=1"});
  EXPECT_EQ(end_earlier(), "");
  EXPECT_TRUE(is_alive(submitted));
  EXPECT_FALSE(is_alive(earlier));
}

TEST_F(Orphans, ThatStayAreTold) {
  const auto earlier = leave_of(1);
  const auto words = "2 processes, among them " + std::to_string(earlier) + " (sh)";
  EXPECT_EQ(end_earlier(50ms, [](const auto&) {}), words);
  EXPECT_EQ(end_earlier(), "");
}

TEST_F(Orphans, OfOneRankAreEndedAndThoseOfItsNeighbourAreNot) {
  const auto report = [&](int rank) { return folder_of(1) + "/logs/rank-" + std::to_string(rank) + ".report.jsonl"; };
  const auto mine = leave_of(1, {"MUSTER_REPORT=" + report(0)}), other = leave_of(1, {"MUSTER_REPORT=" + report(1)});
  const auto renamed = leave({"PATH=/bin"}, folder_of(1) + "/logs/rank-0.log");
  EXPECT_EQ(end_rank({folder_of(1), report(0), folder_of(1) + "/logs/rank-0.log"}, 20s), "");
  EXPECT_FALSE(is_alive(mine));
  EXPECT_FALSE(is_alive(renamed));
  EXPECT_TRUE(is_alive(other));
}

TEST_F(Orphans, AChildThatStaysIsTold) {
  const auto child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(1);
  }
  const auto words = end_children(50ms, [](const auto&) {});
  EXPECT_THAT(words, testing::HasSubstr(std::to_string(child) + " ("));
  EXPECT_EQ(end_children(20s), "");
}

}  // namespace
}  // namespace agent::process
