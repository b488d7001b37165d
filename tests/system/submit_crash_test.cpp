// Goal: at every point of a submission a dead controller loses no acknowledged job and runs none twice.
// Method: real musterd killed by SIGKILL at a delay that sweeps over a submission, as long as one takes here. Rounds
// that wait for a point of the submission follow where the sweep has missed that point. Each job appends one line to
// its own file, so a second start would show.
#include <signal.h>

#include <algorithm>
#include <thread>

#include "tests/system/world.h"

namespace test {
namespace {

TEST(SubmitCrash, NoAcknowledgedJobIsLostAndNoneRunsTwice) {
  // At which points of its submission a job's controller died.
  struct {
    int before_the_answer = 0, before_it_ran = 0, after_it_ran = 0;
    bool all() const { return before_the_answer >= 3 && before_it_ran >= 1 && after_it_ran >= 3; }
  } died;
  constexpr int kSweep = 24, kMost = 48, kUndisturbed = 2;
  int rounds = 0;
  World world;
  world.start_daemon();
  const auto witness_of = [&](int round) { return world.folder() / ("ran-" + std::to_string(round)); };
  const auto answer_of = [&](int round) { return read_file(world.folder() / ("out-" + std::to_string(round))); };
  const auto answered = [&](int round) { return !answer_of(round).empty(); };
  const auto ran = [&](int round) { return std::filesystem::exists(witness_of(round)); };
  const auto begin = [&](int round) {
    const auto file = world.folder() / ("crash-" + std::to_string(round) + ".toml");
    // One attempt only: whatever starts it again is a fault of the controller, not a requeue.
    write_file(file,
               shell_job("echo once >> " + witness_of(round).string(), "max_failed = 0\nmax_controller_lost = 0\n"));
    return std::make_unique<Process>(std::vector<std::string>{World::program("muster"), "submit", file.string()},
                                     world.client_environment(), world.folder() / ("out-" + std::to_string(round)),
                                     world.folder() / "submit.err");
  };
  // The second submission reads programs that are in memory already, as those of the sweep do.
  Clock::duration whole{};
  for (int i = 0; i < kUndisturbed; ++i) {
    const auto begun = Clock::now();
    const auto undisturbed = begin(kMost + i);
    ASSERT_TRUE(eventually([&] { return ran(kMost + i); }, 60s));
    whole = Clock::now() - begun;
    ASSERT_TRUE(undisturbed->wait(60s));
  }
  const auto wait_for_the_point = [&](int round) {
    if (round < kSweep) return std::this_thread::sleep_for(whole * 3 * round / (2 * kSweep));
    if (died.before_the_answer < 3) return;
    eventually([&] { return died.before_it_ran < 1 ? answered(round) : ran(round); }, 60s);
  };
  std::map<std::string, std::filesystem::path> acknowledged;
  for (; rounds < kMost && (rounds < kSweep || !died.all()); ++rounds) {
    const int round = rounds;
    const auto submit = begin(round);
    wait_for_the_point(round);
    world.kill_daemon();
    ++(!answered(round) ? died.before_the_answer : !ran(round) ? died.before_it_ran : died.after_it_ran);
    world.start_daemon();
    ASSERT_TRUE(submit->wait(60s)) << "a submission outlives a controller's restart: it asks again";
    const auto id = answer_of(round);
    if (!id.empty()) acknowledged[id.substr(0, id.find('\n'))] = witness_of(round);
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
  EXPECT_EQ(world.json({"list", "--limit", "1000"}).size(), static_cast<std::size_t>(rounds + kUndisturbed))
      << "no job was stored twice";
}

}  // namespace
}  // namespace test
