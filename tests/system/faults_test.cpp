// Goal: what goes wrong on real machines gets one clear message, and nothing is lost.
// Method: real processes; tiny tmpfs mounts for full and read-only disks (they need root; skipped with a reason
// without).
#include <signal.h>
#include <sys/mount.h>

#include <fstream>

#include "tests/system/world.h"

namespace test {
namespace {

/// A file system of a few MiB, unmounted at the end.
class TinyDisk {
 public:
  TinyDisk(const std::filesystem::path& where, const std::string& size) : where_(where) {
    std::filesystem::create_directories(where);
    mounted_ = mount("tmpfs", where.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
  }
  ~TinyDisk() {
    if (mounted_) umount2(where_.c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  bool read_only(bool on) {
    return mount("tmpfs", where_.c_str(), "tmpfs", MS_REMOUNT | (on ? MS_RDONLY : 0), nullptr) == 0;
  }
  void fill() const {
    std::ofstream file(where_ / "filler", std::ios::binary);
    const std::string block(1 << 12, 'x');
    while (file.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
    }
  }
  void make_room() const { std::filesystem::remove(where_ / "filler"); }

 private:
  std::filesystem::path where_;
  bool mounted_ = false;
};

/// The job, with its checkpoints in that folder.
std::string saving_in(const std::filesystem::path& checkpoints, const TrainingJob& job) {
  auto text = training_job(job);
  return text.insert(text.find("[checkpoint]\n") + 13, "folder = \"" + checkpoints.string() + "\"\n");
}

TEST(Faults, AFullDiskRefusesSubmissionsClearlyAndHealsByItself) {
  TemporaryFolder folder;
  TinyDisk disk(folder.path() / "disk", "24m");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  World world({.data = folder.path() / "disk" / "data", .daemon_flags = {}});
  world.start_daemon();
  const auto running = world.submit(shell_job("exec sleep 600"));
  world.until_state(running, "running");
  disk.fill();
  const auto file = world.folder() / "refused.toml";
  write_file(file, shell_job("true"));
  const auto refused = world.cli({"submit", file});
  EXPECT_EQ(refused.exit, 5);
  EXPECT_EQ(refused.err.find("muster: nothing was changed: the disk is full"), 0U) << refused.err;
  EXPECT_NE(refused.err.find("safe. The submission was not accepted\n"), std::string::npos) << refused.err;
  EXPECT_EQ(world.show(running).at("state"), "running");
  disk.make_room();
  const auto accepted = world.submit(shell_job("true"));
  world.until_state(accepted, "succeeded");
  EXPECT_EQ(world.show(running).at("state"), "running");
}

// Store, logs and all else that belongs to a job are on the full disk; checkpoints, as people have them, on another.
TEST(Faults, TrainingGoesOnWhileTheDataFolderIsFullAndItsMetricsHaveNoGap) {
  constexpr int kSteps = 120;
  TemporaryFolder folder;
  TinyDisk disk(folder.path() / "disk", "24m");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  World world({.data = folder.path() / "disk" / "data", .daemon_flags = {}});
  world.start_daemon();
  const auto checkpoints = folder.path() / "checkpoints";
  const auto job = world.submit(saving_in(checkpoints, {.steps = kSteps, .every_steps = 10, .step_delay_ms = 50}));
  world.until_step(job, 15);
  disk.fill();
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(checkpoints / "step-00000060"); }, 60s))
      << "training stands still";
  disk.make_room();
  const auto after = world.until_state(job, "succeeded");
  EXPECT_EQ(after.at("attempts").size(), 1U) << after.dump(1);
  expect_every_step(world.metrics(job), kSteps);
}

// The end of the story above told otherwise: there is room only when all ranks have left.
TEST(Faults, ARunThatEndsWhileTheDataFolderIsFullLosesNothing) {
  constexpr int kSteps = 60;
  TemporaryFolder folder;
  TinyDisk disk(folder.path() / "disk", "24m");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  World world({.data = folder.path() / "disk" / "data", .daemon_flags = {}});
  world.start_daemon();
  const auto job =
      world.submit(saving_in(folder.path() / "checkpoints", {.steps = kSteps, .every_steps = 10, .step_delay_ms = 50}));
  const auto running = world.until_step(job, 15);
  disk.fill();
  for (const auto& rank : running.at("ranks")) {
    const auto process = "/proc/" + std::to_string(rank.at("pid").get<int>());
    ASSERT_TRUE(eventually([&] { return !std::filesystem::exists(process); }, 90s)) << "it does not leave";
  }
  disk.make_room();
  const auto after = world.until_state(job, "succeeded");
  EXPECT_EQ(after.at("attempts").size(), 1U) << after.dump(1);
  EXPECT_EQ(after.at("last_checkpoint_step"), kSteps) << after.dump(1);
  ASSERT_TRUE(eventually([&] { return world.metrics(job).size() >= kSteps; }, 60s)) << "read again from time to time";
  expect_every_step(world.metrics(job), kSteps);
}

TEST(Faults, ANextAttemptWaitsForRoomOnItsCheckpointDiskAndWhySaysSo) {
  TemporaryFolder folder;
  TinyDisk disk(folder.path() / "checkpoints", "8m");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  World world;
  world.start_daemon();
  // Saves nothing before its end, so what it removes makes no room.
  const auto job =
      world.submit(saving_in(folder.path() / "checkpoints", {.steps = 400, .every_steps = 1000, .step_delay_ms = 30}));
  const auto running = world.until_step(job, 5);
  disk.fill();
  signal_rank(running, 0, SIGKILL);
  EXPECT_TRUE(eventually(
      [&] {
        const auto why = world.cli({"why", job}).out;
        return why.find("checkpoints/FENCE: No space left on device") != std::string::npos &&
               why.find("Make room there") != std::string::npos;
      },
      60s))
      << world.cli({"why", job}).out;
  EXPECT_EQ(world.show(job).at("state"), "waiting");
  disk.make_room();
  const auto after = world.until_state(job, "succeeded");
  EXPECT_EQ(after.at("attempts").size(), 2U) << after.dump(1);
}

TEST(Faults, AReadOnlyCheckpointFolderIsNamedAndEarlierCheckpointsStay) {
  TemporaryFolder folder;
  TinyDisk disk(folder.path() / "checkpoints", "64m");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  World world;
  world.start_daemon();
  const auto job =
      world.submit(saving_in(folder.path() / "checkpoints",
                             {.steps = 400, .every_steps = 10, .step_delay_ms = 30, .more = "max_failed = 0\n"}));
  world.until_step(job, 15);
  ASSERT_TRUE(disk.read_only(true));
  const auto after = world.until_state(job, "failed");
  const auto reason = after.at("reason").get<std::string>();
  EXPECT_NE(reason.find("checkpoint"), std::string::npos) << reason;
  EXPECT_NE(reason.find("Read-only file system"), std::string::npos) << reason;
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "checkpoints" / "step-00000010" / "manifest.json"));
}

TEST(Faults, ADiskThatFillsDuringACheckpointKeepsTheOneBefore) {
  TemporaryFolder folder;
  TinyDisk disk(folder.path() / "checkpoints", "8m");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a tmpfs needs root";
  World world;
  world.start_daemon();
  const auto job =
      world.submit(saving_in(folder.path() / "checkpoints",
                             {.steps = 400, .every_steps = 10, .step_delay_ms = 30, .more = "max_failed = 5\n"}));
  world.until_step(job, 13);
  disk.fill();
  world.until(job, [](const Json& view) { return view.at("attempts")[0].at("state") == "ended"; });
  EXPECT_NE(world.show(job).at("attempts")[0].at("reason").get<std::string>().find("No space left"), std::string::npos);
  disk.make_room();
  const auto after = world.until_state(job, "succeeded");
  EXPECT_GE(last(after.at("attempts")).at("resumed_from_step").get<int>(), 10);
}

TEST(Faults, ACorruptDatabaseIsNamedAndLeftAlone) {
  World world;
  std::filesystem::create_directories(world.data());
  const std::string garbage(100000, 'g');
  write_file(world.data() / "muster.db", garbage);
  auto& daemon = world.launch_daemon();
  const auto exit = daemon.wait(10s);
  ASSERT_TRUE(exit);
  EXPECT_NE(*exit, 0);
  EXPECT_NE(world.daemon_log().find("muster.db"), std::string::npos) << world.daemon_log();
  EXPECT_EQ(read_file(world.data() / "muster.db"), garbage);
  std::filesystem::remove(world.data() / "muster.db");
}

TEST(Faults, ASecondDaemonOnTheSameFolderIsRefused) {
  World world;
  world.start_daemon();
  const auto second = run(
      {World::program("musterd"), "--data-folder", world.data(), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"},
      {}, 10s);
  EXPECT_GT(second.exit, 0);
  EXPECT_NE(second.err.find(std::to_string(world.daemon().pid())), std::string::npos) << second.err;
  EXPECT_EQ(world.cli({"list"}).exit, 0) << "the first one goes on";
}

TEST(Faults, APortInUseIsNamed) {
  World first;
  first.start_daemon();
  const auto address = first.client_environment().at("MUSTER_ADDRESS");
  World second;
  const auto refused =
      run({World::program("musterd"), "--data-folder", second.data(), "--listen", address, "--http", "127.0.0.1:0"}, {},
          10s);
  EXPECT_GT(refused.exit, 0);
  EXPECT_NE(refused.err.find(address), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("in use"), std::string::npos) << refused.err;
}

TEST(Faults, ADamagedMemoryOfPortsIsNamedAndCostsNoStart) {
  for (const char* text : {R"({"grpc":"x","http":[1]})", R"({"grpc":70000,"http":-1})", R"({"grpc":1e300})", "[", ""}) {
    World world({.any_ports = true});
    std::filesystem::create_directories(world.data());
    write_file(world.data() / "ports.json", text);
    world.start_daemon();
    EXPECT_EQ(world.cli({"list"}).exit, 0) << text;
    const bool has_entries = text[0] == '{';
    EXPECT_EQ(world.daemon_log().find("ports.json: \"grpc\" is ") != std::string::npos, has_entries) << text;
    EXPECT_GT(Json::parse(read_file(world.data() / "ports.json")).at("grpc").get<int>(), 0) << text;
  }
}

TEST(Faults, AJobFileOfGarbageIsRefusedBeforeAnythingIsStored) {
  World world;
  world.start_daemon();
  const auto file = world.folder() / "garbage.toml";
  for (const auto& text :
       {std::string("\x00\xff\xfe garbage \x01", 14), std::string("name = "), std::string(3000000, '[')}) {
    write_file(file, text);
    const auto refused = world.cli({"submit", file});
    EXPECT_EQ(refused.exit, 2);
    EXPECT_NE(refused.err.find("garbage.toml:"), std::string::npos) << refused.err;
    EXPECT_LT(refused.err.size(), 4000U);
  }
  EXPECT_EQ(world.json({"list"}), Json::array());
}

TEST(Faults, WithoutAControllerTheCommandLineSaysSo) {
  World world;
  const auto done =
      run({World::program("muster"), "list"}, {{"MUSTER_ADDRESS", "127.0.0.1:1"}, {"HOME", world.folder()}}, 20s);
  EXPECT_EQ(done.exit, 4);
  EXPECT_NE(done.err.find("127.0.0.1:1"), std::string::npos) << done.err;
}

TEST(Faults, AWrongTokenIsRefused) {
  World world;
  world.start_daemon();
  auto environment = world.client_environment();
  EXPECT_EQ(std::filesystem::status(world.data() / "token").permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  environment["MUSTER_TOKEN"] = "not-the-token";
  const auto refused = run({World::program("muster"), "list"}, environment, 20s);
  EXPECT_NE(refused.exit, 0);
  EXPECT_NE(refused.err.find("token"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace test
