// Goal: at every point of a submission a dead controller loses no acknowledged job and runs none twice.
// Method: real musterd killed by SIGKILL at a delay that sweeps over the whole submission, as long as that takes here;
// each job appends one line to its own file, so a second start would show.
#include <signal.h>

#include <algorithm>
#include <thread>

#include "system/world.h"

namespace test {
namespace {

TEST(SubmitCrash, NoAcknowledgedJobIsLostAndNoneRunsTwice) {
  // At which points of its submission a job's controller died.
  struct {
    int before_the_answer = 0, before_it_ran = 0, after_it_ran = 0;
    bool all() const { return before_the_answer >= 3 && before_it_ran >= 1 && after_it_ran >= 3; }
  } died;
  constexpr int kLeast = 24, kMost = 80;
  int rounds = 0;
  World world;
  world.start_daemon();
  const auto witness_of = [&](int round) { return world.folder() / ("ran-" + std::to_string(round)); };
  const auto begin = [&](int round) {
    const auto file = world.folder() / ("crash-" + std::to_string(round) + ".toml");
    // One attempt only: whatever starts it again is a fault of the controller, not a requeue.
    write_file(file,
               shell_job("echo once >> " + witness_of(round).string(), "max_failed = 0\nmax_controller_lost = 0\n"));
    return std::make_unique<Process>(std::vector<std::string>{World::program("muster"), "submit", file.string()},
                                     world.client_environment(), world.folder() / ("out-" + std::to_string(round)),
                                     world.folder() / "submit.err");
  };
  const auto begun = Clock::now();
  const auto undisturbed = begin(kMost);
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(witness_of(kMost)); }, 60s));
  const auto whole = Clock::now() - begun;
  ASSERT_TRUE(undisturbed->wait(60s));
  std::map<std::string, std::filesystem::path> acknowledged;
  for (; rounds < kMost && (rounds < kLeast || !died.all()); ++rounds) {
    const int round = rounds;
    const auto witness = witness_of(round);
    const auto submit = begin(round);
    // The sweep: from before the call arrives to after the process has run, again and again, each wider than the last.
    std::this_thread::sleep_for(whole * 3 * (round % kLeast) * (2 + round / kLeast) / (4 * kLeast));
    world.kill_daemon();
    const bool answered = !read_file(world.folder() / ("out-" + std::to_string(round))).empty();
    ++(!answered ? died.before_the_answer : !std::filesystem::exists(witness) ? died.before_it_ran : died.after_it_ran);
    world.start_daemon();
    ASSERT_TRUE(submit->wait(60s)) << "a submission outlives a controller's restart: it asks again";
    const auto id = read_file(world.folder() / ("out-" + std::to_string(round)));
    if (!id.empty()) acknowledged[id.substr(0, id.find('\n'))] = witness;
  }
  EXPECT_TRUE(died.all()) << died.before_the_answer << " died before the answer, " << died.before_it_ran
                          << " before the job ran, " << died.after_it_ran << " after it";
  EXPECT_EQ(acknowledged.size(), static_cast<std::size_t>(rounds)) << read_file(world.folder() / "submit.err");
  for (const auto& [id, witness] : acknowledged) {
    const auto view =
        world.until(id, [](const Json& job) { return job.at("state") == "succeeded" || job.at("state") == "failed"; });
    EXPECT_EQ(view.at("state"), "succeeded") << view.dump(1);
    EXPECT_EQ(read_file(witness), "once\n") << "job " << id;
  }
  EXPECT_EQ(world.json({"list", "--limit", "1000"}).size(), static_cast<std::size_t>(rounds) + 1)
      << "no job was stored twice";
}

}  // namespace
}  // namespace test
