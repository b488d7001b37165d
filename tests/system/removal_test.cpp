// Goal: a person gets rid of old jobs, whatever happens to musterd meanwhile, and finds the controller by its data
// folder. Method: real programs; musterd killed in the middle of removing thousands of files.
#include <fstream>

#include "tests/system/world.h"

namespace test {
namespace {

namespace fs = std::filesystem;

TEST(Removal, ARemovedJobLeavesItsHistoryAlone) {
  World world;
  world.start_daemon();
  const auto job = world.submit(shell_job("echo saved > $MUSTER_CHECKPOINT_FOLDER/state; echo done"));
  world.until_state(job, "succeeded");
  ASSERT_TRUE(fs::exists(world.checkpoints(job) / "state"));
  const auto goes_on = world.submit(shell_job("exec sleep 600"));
  world.until_state(goes_on, "running");
  EXPECT_EQ(world.cli({"rm", goes_on}).exit, 2);

  const auto removed = world.cli({"rm", job});
  EXPECT_EQ(removed.exit, 0) << removed.err;
  EXPECT_TRUE(removed.out.starts_with("job " + job + " removed: ")) << removed.out;
  EXPECT_TRUE(eventually([&] { return !fs::exists(world.data() / "jobs" / job); }, 20s));
  EXPECT_EQ(world.cli({"show", job}).exit, 3);
  EXPECT_NE(world.cli({"show", job}).err.find("job " + job + " was removed by "), std::string::npos);
  EXPECT_EQ(world.cli({"logs", job}).exit, 3);
  EXPECT_EQ(world.json({"list"}).size(), 1U);
  EXPECT_NE(world.cli({"events", job}).out.find("removed by"), std::string::npos);
  world.kill_daemon();
  world.start_daemon();
  EXPECT_EQ(world.json({"list"}).size(), 1U);
  EXPECT_EQ(world.submit(shell_job("true")), "3") << "the number is not given again";
}

TEST(Removal, FilesThatAKilledMusterdLeftAreDeletedByTheNext) {
  World world;
  world.start_daemon();
  std::vector<std::string> command{"rm"};
  for (int i = 0; i < 5; ++i) {
    const auto job = world.submit(shell_job("true"));
    world.until_state(job, "succeeded");
    command.push_back(job);
    for (int file = 0; file < 2000; ++file) {
      std::ofstream(world.checkpoints(job) / ("part-" + std::to_string(file))) << file;
    }
  }
  EXPECT_EQ(world.cli(command).exit, 0);
  world.kill_daemon();
  world.start_daemon();
  EXPECT_TRUE(eventually([&] { return fs::is_empty(world.data() / "jobs"); }, 60s));
  EXPECT_TRUE(world.json({"list"}).empty());
}

TEST(Removal, PruneTakesOldJobsAndLeavesTheNewest) {
  World world;
  world.start_daemon();
  std::string newest;
  for (int i = 0; i < 3; ++i) {
    newest = world.submit(shell_job("true"));
    world.until_state(newest, "succeeded");
  }
  EXPECT_EQ(world.cli({"prune", "--older-than", "1h"}).out, "0 jobs removed, 0 B\n");
  const auto plan = world.cli({"prune", "--keep-last", "1", "--dry-run"});
  EXPECT_NE(plan.out.find("2 jobs would be removed"), std::string::npos) << plan.out << plan.err;
  EXPECT_EQ(world.cli({"prune", "--keep-last", "1"}).exit, 0);
  const auto left = world.json({"list"});
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(std::to_string(left[0].at("id").get<int>()), newest);
}

TEST(DataFolder, OneVariableFindsAddressAndToken) {
  World world;
  world.start_daemon();
  std::map<std::string, std::string> one{{"MUSTER_DATA_FOLDER", world.data()}, {"HOME", world.folder()}};
  const auto muster = World::program("muster");
  EXPECT_EQ(run({muster, "list"}, one, 20s).exit, 0);
  const auto link = run({muster, "dashboard"}, one, 20s);
  EXPECT_EQ(link.exit, 0) << link.err;
  EXPECT_NE(link.out.find("/#token="), std::string::npos);
  // A port that is the dashboard's is called so, with the right one beside it.
  const auto http = link.out.substr(7, link.out.find("/#") - 7);
  const auto wrong = run({muster, "list", "--address", http}, one, 20s);
  EXPECT_EQ(wrong.exit, 4);
  EXPECT_NE(wrong.err.find("is the port of a dashboard"), std::string::npos) << wrong.err;
  EXPECT_NE(wrong.err.find("use --address 127.0.0.1:"), std::string::npos) << wrong.err;
  world.kill_daemon();
  const auto stale = run({muster, "list"}, one, 20s);
  EXPECT_EQ(stale.exit, 4);
  EXPECT_NE(stale.err.find("musterd.json was left by process "), std::string::npos) << stale.err;
  world.start_daemon();
}

}  // namespace
}  // namespace test
