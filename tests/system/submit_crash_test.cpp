// Goal: at every point of a submission a dead controller loses no acknowledged job and runs none twice.
// Method: real musterd killed by SIGKILL at a delay that sweeps over the whole submission; each job appends one line to
// its own file, so a second start would show.
#include <signal.h>

#include <algorithm>
#include <thread>

#include "system/world.h"

namespace test {
namespace {

TEST(SubmitCrash, NoAcknowledgedJobIsLostAndNoneRunsTwice) {
  constexpr int kRounds = 24;
  World world;
  world.start_daemon();
  std::map<std::string, std::filesystem::path> acknowledged;
  for (int round = 0; round < kRounds; ++round) {
    const auto witness = world.folder() / ("ran-" + std::to_string(round));
    const auto file = world.folder() / ("crash-" + std::to_string(round) + ".toml");
    // One attempt only: whatever starts it again is a fault of the controller, not a requeue.
    write_file(file, shell_job("echo once >> " + witness.string(), "max_failed = 0\nmax_controller_lost = 0\n"));
    Process submit({World::program("muster"), "submit", file.string()}, world.client_environment(),
                   world.folder() / ("out-" + std::to_string(round)), world.folder() / "submit.err");
    // The sweep: from before the call arrives to after the process has run.
    std::this_thread::sleep_for(std::chrono::milliseconds(4 * round));
    world.kill_daemon();
    world.start_daemon();
    ASSERT_TRUE(submit.wait(60s)) << "a submission outlives a controller's restart: it asks again";
    const auto id = read_file(world.folder() / ("out-" + std::to_string(round)));
    if (!id.empty()) acknowledged[id.substr(0, id.find('\n'))] = witness;
  }
  EXPECT_EQ(acknowledged.size(), static_cast<std::size_t>(kRounds)) << read_file(world.folder() / "submit.err");
  for (const auto& [id, witness] : acknowledged) {
    const auto view =
        world.until(id, [](const Json& job) { return job.at("state") == "succeeded" || job.at("state") == "failed"; });
    EXPECT_EQ(view.at("state"), "succeeded") << view.dump(1);
    EXPECT_EQ(read_file(witness), "once\n") << "job " << id;
  }
  EXPECT_EQ(world.json({"list", "--limit", "1000"}).size(), static_cast<std::size_t>(kRounds))
      << "no job was stored twice";
}

}  // namespace
}  // namespace test
