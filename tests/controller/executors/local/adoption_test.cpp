#include <fcntl.h>
#include <unistd.h>

#include <fstream>

#include "agent/protocol/attempt_folder.h"
#include "base/process_table.h"
#include "tests/controller/executors/local/world.h"

// Goal: a controller that comes back finds its ranks again.
// Method: executors made and destroyed over the same folder; ranks are real processes.
namespace test {

class Adoption : public World {
 protected:
  core::Attempt attempt(const core::AttemptLaunched& launched) const {
    core::Attempt result;
    result.number = launched.attempt;
    result.handle = launched.handle;
    result.ranks.resize(launched.pids.size());
    return result;
  }
};

constexpr const char* kWaitsForItsFile =
    "echo $RANK >> starts; while [ ! -e end.$RANK ]; do sleep 0.02; done; exit 4$RANK";

TEST_F(Adoption, TellsWhatHappenedMeanwhileAndWhatHappensLater) {
  const auto launched = must_launch(1, kWaitsForItsFile, 2);
  end_controller();
  write_file(root_ / "work/end.0", "");
  ASSERT_TRUE(eventually([&] { return status(1).exits.contains(0); }));
  EXPECT_TRUE(is_alive(launched.pids.at(1))) << "shutdown leaves attempts running";

  restart_controller();
  executor_->adopt({1, 1}, attempt(launched));
  const auto missed = facts_.exit_of(0);
  ASSERT_TRUE(missed);
  EXPECT_EQ(missed->exit.code, 40);
  write_file(root_ / "work/end.1", "");
  const auto later = facts_.exit_of(1);
  ASSERT_TRUE(later);
  EXPECT_EQ(later->exit.code, 41);
  EXPECT_EQ(count_lines(root_ / "work/starts"), 2u);
  EXPECT_EQ(facts_.all().size(), 2u);
}

TEST_F(Adoption, DoesNotRepeatWhatIsKnown) {
  const auto launched = must_launch(1, kWaitsForItsFile, 2);
  write_file(root_ / "work/end.0", "");
  ASSERT_TRUE(facts_.exit_of(0));
  restart_controller();
  auto known = attempt(launched);
  known.ranks[0].state = core::RankState::kExited;
  executor_->adopt({1, 1}, known);
  executor_->adopt({1, 1}, known);
  write_file(root_ / "work/end.1", "");
  ASSERT_TRUE(facts_.exit_of(1));
  EXPECT_EQ(facts_.all().size(), 2u);
}

TEST_F(Adoption, OfAnAttemptThatEndedMeanwhileTellsItsExits) {
  const auto launched = must_launch(1, kWaitsForItsFile, 2);
  end_controller();
  write_file(root_ / "work/end.0", "");
  write_file(root_ / "work/end.1", "");
  ASSERT_TRUE(eventually([&] { return status(1).ended; }));
  restart_controller();
  executor_->adopt({1, 1}, attempt(launched));
  EXPECT_TRUE(facts_.exit_of(0) && facts_.exit_of(1));
  EXPECT_EQ(facts_.all().size(), 2u);
}

TEST_F(Adoption, StopsWhatItAdopted) {
  const auto launched = must_launch(1, kWaitsForItsFile, 2);
  restart_controller();
  executor_->adopt({1, 1}, attempt(launched));
  stop({1, 1}, {0ms});
  EXPECT_TRUE(facts_.exit_of(0) && facts_.exit_of(1));
}

TEST_F(Adoption, OfWhatLeftNoTraceIsGone) {
  executor_->adopt({5, 1}, core::Attempt{});
  ASSERT_TRUE(facts_.wait_for(1));
  const auto gone = facts_.of<core::AttemptGone>();
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone[0].cause, core::Cause::kControllerLost);
  EXPECT_THAT(gone[0].reason, testing::StartsWith("no trace of it: no folder "));
}

TEST_F(Adoption, OfAFolderWhereNothingWasStartedIsGone) {
  std::filesystem::create_directories(folder(1));
  write_file(folder(1) / "run.json", "{}");
  write_file(folder(1) / "status.jsonl", "{\"fact\":\"started\",\"boot_id\":\"torn");
  executor_->adopt({1, 1}, core::Attempt{});
  ASSERT_TRUE(facts_.wait_for(1));
  EXPECT_THAT(facts_.of<core::AttemptGone>().at(0).reason, testing::StartsWith("no trace of it: nothing was started"));
}

TEST_F(Adoption, AfterAMachinesRestartIsGone) {
  std::filesystem::create_directories(folder(1));
  agent::protocol::Started started{"another-boot", "node", 1, {{::getpid(), 1}, {::getpid(), 1}}};
  write_file(
      folder(1) / "status.jsonl",
      agent::protocol::to_line(started) + agent::protocol::to_line(agent::protocol::Exited{0, {3, 0}, false, 0, ""}));
  executor_->adopt({1, 1}, core::Attempt{});
  ASSERT_TRUE(facts_.wait_for(2));
  EXPECT_EQ(facts_.of<core::RankExited>().size(), 1u);
  EXPECT_EQ(facts_.of<core::AttemptGone>().at(0).reason,
            "the machine was restarted; no process is left, and how these ranks ended is not known: 1");
}

// Nobody but its file and its lock speaks for it: so it is with an agent that cannot reach the port, and with the
// supervisor of an earlier muster, whose words on a socket nobody understands any more.
TEST_F(Adoption, OfAnAttemptWhoseAgentIsNotHeardTellsWhatItsFileSays) {
  look_every_ = 50ms;
  restart_controller();
  std::filesystem::create_directories(folder(1));
  write_file(folder(1) / "launch.json", R"({"job":1,"attempt":1,"argv":["x"],"env":{},"ranks":2,"master_port":9999})");
  const auto rank = *base::read_stat(must_launch(2, "exec sleep 1000").pids.at(0));
  const agent::protocol::Started started{base::boot_id(), "node", -1, {{rank.pid, rank.start_time}, {rank.pid, 1}}};
  const auto file = folder(1) / "status.jsonl";
  write_file(file, agent::protocol::to_line(started) + agent::protocol::to_line(agent::protocol::Running{}));
  const auto held = agent::protocol::open_folder(folder(1));
  auto lock = agent::protocol::try_lock(held.get());
  ASSERT_TRUE(lock);
  executor_->adopt({1, 1}, core::Attempt{});
  const auto add = [&](const agent::protocol::Fact& fact) {
    std::ofstream(file, std::ios::app) << agent::protocol::to_line(fact);
  };
  add(agent::protocol::Exited{1, {3, 0}, false, 5, "ValueError: bad batch"});
  const auto first = facts_.exit_of(1);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->exit.code, 3);
  EXPECT_EQ(first->error, "ValueError: bad batch");
  add(agent::protocol::Exited{0, {0, 9}, false, 6, ""});
  add(agent::protocol::Ended{});
  lock.reset();
  ASSERT_TRUE(facts_.exit_of(0));
  EXPECT_EQ(facts_.all().size(), 2U);
}

TEST_F(Adoption, AnUnreadableFolderIsTroubleAndNotTheEnd) {
  if (::geteuid() == 0) {
    // root reads everything: a folder that is a loop of links cannot be opened by anyone.
    std::filesystem::create_directories(folder(1).parent_path());
    std::filesystem::create_symlink("attempt-1", folder(1));
    executor_->adopt({1, 1}, core::Attempt{});
  } else {
    std::filesystem::create_directories(folder(1));
    std::filesystem::permissions(folder(1), std::filesystem::perms::none);
    executor_->adopt({1, 1}, core::Attempt{});
  }
  // Later calls are answered by the same thread: when this attempt's end is told, the other one was looked at.
  must_launch(2, "exit 0");
  ASSERT_TRUE(facts_.wait_for(1));
  EXPECT_TRUE(facts_.of<core::AttemptGone>().empty());
  std::filesystem::permissions(folder(1).parent_path(), std::filesystem::perms::owner_all);
  std::filesystem::remove(folder(1));
  ASSERT_TRUE(facts_.wait_for(2)) << "it goes on asking";
  EXPECT_EQ(facts_.of<core::AttemptGone>().size(), 1u);
}

// Scratch file systems are swept: an old file goes, and its folder.
TEST_F(Adoption, AnAgentThatLivesIsFollowedWhateverHasBecomeOfItsFiles) {
  look_every_ = 20ms;
  for (const std::string removed : {"lock", "status.jsonl", ""}) {
    SCOPED_TRACE(removed.empty() ? "the folder" : removed);
    const core::JobId job = removed.empty() ? 3 : removed == "lock" ? 1 : 2;
    restart_controller();
    const auto launched =
        must_launch(job, "while [ ! -e end." + std::to_string(job) + " ]; do sleep 0.02; done; exit 4");
    const auto told = facts_.all().size();
    const auto agent = agent_of(job);
    ASSERT_TRUE(eventually([&] { return status(job).running; }));
    std::filesystem::rename(folder(job) / removed, root_ / ("swept" + std::to_string(job)));
    const auto until = SteadyClock::now() + 20 * look_every_;
    ASSERT_TRUE(eventually([&] { return SteadyClock::now() >= until; }));
    EXPECT_EQ(facts_.all().size(), told);
    EXPECT_TRUE(is_alive(launched.pids.at(0)));
    write_file(root_ / "work" / ("end." + std::to_string(job)), "");
    ASSERT_TRUE(facts_.wait_for(told + 1));
    EXPECT_TRUE(eventually([&] { return !is_alive(agent); }));
    const auto last = facts_.all().back();
    const auto* exited = std::get_if<core::RankExited>(&last);
    ASSERT_TRUE(exited);
    EXPECT_EQ(exited->exit.code, 4);
  }
  EXPECT_TRUE(facts_.of<core::AttemptGone>().empty());
}

TEST_F(Adoption, WhatALostAgentLeavesBehindIsEndedThoughItsFolderIsGone) {
  look_every_ = 20ms;
  restart_controller();
  auto request = request_of(1, "setsid sleep 1000 & echo $! > child; wait");
  request.env["MUSTER_ATTEMPT_FOLDER"] = folder(1).string();
  const auto launched = must_launch(request);
  ASSERT_TRUE(eventually([&] { return count_lines(root_ / "work/child") == 1; }));
  const auto child = std::stoll(read_file(root_ / "work/child"));
  const auto agent = agent_of(1);
  const auto until = SteadyClock::now() + 10 * look_every_;
  ASSERT_TRUE(eventually([&] { return SteadyClock::now() >= until; })) << "it has been looked at";
  std::filesystem::rename(folder(1), root_ / "swept");
  ::kill(static_cast<pid_t>(agent), SIGKILL);
  ASSERT_TRUE(facts_.wait_for(1));
  EXPECT_EQ(facts_.of<core::AttemptGone>().size(), 1u);
  EXPECT_FALSE(is_alive(launched.pids.at(0)));
  EXPECT_FALSE(is_alive(child)) << "beside the next attempt";
}

}  // namespace test
