// Goal: whether a musterd runs on a data folder is told by its lock, and not by a number that others may have by now.
#include "controller/common/ready_file.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "base/durable_file.h"
#include "tests/controller/service/bench.h"
#include "tests/held_lock.h"

namespace common::testing {
namespace {

using ::testing::HasSubstr;
using Kind = Running::Kind;

TEST(ReadyFile, TellsWhoRunsAsLongAsTheLockIsHeld) {
  service::testing::TempFolder folder;
  const auto& data = folder.path();
  EXPECT_EQ(who_runs(data).kind, Kind::kNone);
  EXPECT_EQ(who_runs(data).why, "");
  auto lock = test::hold_lock(data);
  EXPECT_EQ(who_runs(data).kind, Kind::kBusy) << "it holds the folder before it is ready";
  {
    const OwnReadyFile own(data, {"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:1", "1.0"});
    const auto running = who_runs(data);
    EXPECT_EQ(running.kind, Kind::kHere);
    EXPECT_EQ(running.ready->pid, ::getpid());
    EXPECT_EQ(running.ready->grpc, "127.0.0.1:1");
    EXPECT_TRUE(running.ready->is_alive());
    lock.reset();
    EXPECT_EQ(who_runs(data).kind, Kind::kNone) << "whoever has the number holds no lock";
    EXPECT_THAT(who_runs(data).why, HasSubstr("was left by process " + std::to_string(::getpid())));
  }
  EXPECT_FALSE(who_runs(data).ready);
}

TEST(ReadyFile, OfAnEarlierProcessWithTheSameNumberIsNotAlive) {
  service::testing::TempFolder folder;
  const OwnReadyFile own(folder.path(), {"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:1", "1.0"});
  auto ready = read_ready_file(folder.path());
  ASSERT_TRUE(ready);
  ++ready->start_time;
  EXPECT_FALSE(ready->is_alive());
  --ready->start_time;
  ready->boot = "another boot";
  EXPECT_FALSE(ready->is_alive());
}

TEST(ReadyFile, OfAnotherHostIsBelievedWhereLocksDoNotReachThatFar) {
  const std::string root = "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n";
  const auto mounted = [&](const std::string& kind, const std::string& options) {
    return root + "30 20 0:40 / /home rw,relatime shared:7 - " + kind + " server:/home " + options + "\n";
  };
  EXPECT_TRUE(is_lock_seen_everywhere("/data", root));
  EXPECT_TRUE(is_lock_seen_everywhere("/home/ada", mounted("nfs4", "rw,vers=4.2,local_lock=none")));
  EXPECT_FALSE(is_lock_seen_everywhere("/home/ada", mounted("nfs", "rw,vers=3,local_lock=flock")));
  EXPECT_FALSE(is_lock_seen_everywhere("/home/ada", mounted("nfs", "rw,nolock,local_lock=all")));
  EXPECT_FALSE(is_lock_seen_everywhere("/home/ada", mounted("lustre", "rw,localflock")));
  EXPECT_TRUE(is_lock_seen_everywhere("/homes", mounted("lustre", "rw"))) << "not below /home";

  service::testing::TempFolder folder;
  base::write_file_durably(folder.path() / "musterd.json", R"({"pid":1,"host":"node17","grpc":"127.0.0.1:1"})");
  EXPECT_EQ(who_runs(folder.path()).kind, Kind::kNone) << "a disk of this machine";
  const auto lock = test::hold_lock(folder.path());
  EXPECT_EQ(who_runs(folder.path()).kind, Kind::kElsewhere);
}

}  // namespace
}  // namespace common::testing
