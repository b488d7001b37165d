// Goal: a file system that does not answer holds nobody up for long.
// Method: a pipe that nobody writes to stands for it.
#include "base/patience.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace base {
namespace {

using namespace std::chrono_literals;

class StuckDisk {
 public:
  StuckDisk() {
    if (::pipe(ends_.data()) != 0) throw std::runtime_error("no pipe");
  }
  ~StuckDisk() {
    answer();
    ::close(ends_[0]);
  }
  StuckDisk(const StuckDisk&) = delete;
  StuckDisk& operator=(const StuckDisk&) = delete;

  void read() const {
    char byte = 0;
    [[maybe_unused]] const auto count = ::read(ends_[0], &byte, 1);
  }
  /// Everybody who reads goes on.
  void answer() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  std::array<int, 2> ends_{};
};

TEST(Patience, AnAnswerInTimeIsTheAnswer) {
  EXPECT_EQ(ask_within<std::string>(10s, [] { return std::string("here"); }), "here");
}

TEST(Patience, AnExceptionIsNoAnswer) {
  EXPECT_EQ(ask_within<int>(10s, []() -> int { throw std::runtime_error("no"); }), std::nullopt);
}

TEST(Patience, NobodyWaitsLongerAndOnlySoManyAreLeftBehind) {
  const auto disk = std::make_shared<StuckDisk>();
  for (int i = 0; i < kMostStuck; ++i) {
    EXPECT_EQ(ask_within<int>(1ms, [disk] { return disk->read(), 1; }), std::nullopt);
  }
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(ask_within<int>(1h, [] { return 1; }), std::nullopt) << "not even begun";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1min);
  disk->answer();
  std::optional<int> again;
  for (const auto until = begin + 1min; !again && std::chrono::steady_clock::now() < until;) {
    again = ask_within<int>(10s, [] { return 1; });
    if (!again) std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(again, 1) << "when it answers, all is as before";
}

TEST(Patience, OneFileSystemThatDoesNotAnswerIsNoReasonNotToAskTheOthers) {
  const auto disk = std::make_shared<StuckDisk>();
  for (int i = 0; i < kMostStuck; ++i) {
    EXPECT_EQ(ask_within<int>(1ms, "/nfs/anna", [disk] { return disk->read(), 1; }), std::nullopt);
  }
  EXPECT_EQ(ask_within<int>(1h, "/nfs/anna", [] { return 1; }), std::nullopt);
  EXPECT_EQ(ask_within<int>(10s, "/nfs/ben", [] { return 1; }), 1);
  EXPECT_EQ(ask_within<int>(10s, [] { return 1; }), 1);
}

TEST(Patience, WhomToAskIsTheNearestMount) {
  const std::string mounts =
      "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
      "40 22 0:50 / /nfs rw - nfs4 server:/export rw\n"
      "41 40 0:51 /anna /nfs/anna rw - nfs4 other:/anna rw\n"
      "42 22 0:52 / /mnt/two\\040words rw - nfs4 other:/two rw\n"
      "no line of this kind\n";
  const auto of = [&](const char* path) {
    std::istringstream text(mounts);
    return file_system_of(path, text);
  };
  EXPECT_EQ(of("/home/ben/checkpoints"), "/");
  EXPECT_EQ(of("/nfs/ben/checkpoints"), "/nfs");
  EXPECT_EQ(of("/nfs/anna/checkpoints"), "/nfs/anna");
  EXPECT_EQ(of("/nfs/ben/../anna"), "/nfs/anna");
  EXPECT_EQ(of("/nfs/annabel"), "/nfs");
  EXPECT_EQ(of("/mnt/two words/checkpoints"), "/mnt/two words");
  EXPECT_EQ(file_system_of("/proc/self"), "/proc");
}

}  // namespace
}  // namespace base
