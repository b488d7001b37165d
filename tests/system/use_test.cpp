// Goal: people see which rank computes and which one waits, of any program and without a word from it.
// Method: Python programs under the real controller, which is killed meanwhile.
#include <map>

#include "tests/system/world.h"

namespace test {
namespace {

/// The line of `muster top --json` on each rank of a job.
std::map<int, Json> use_of(World& world, const std::string& job) {
  std::map<int, Json> ranks;
  for (const auto& line : world.json({"top", job})) ranks[line.at("rank").get<int>()] = line;
  return ranks;
}

double number_in(const Json& line, const char* key) {
  return line.at(key).is_number() ? line.at(key).get<double>() : -1;
}

TEST(Use, TellsBusyRanksFromIdleOnes) {
  World world;
  world.start_daemon();
  // Rank 2 waits for a child in a session of its own, which burns. Rank 3 holds memory.
  const auto job = world.submit(R"(name = "use"
command = ["python3", "-c", '''
import os, subprocess, sys, time
burn = "import time; end = time.time() + 150\nwhile time.time() < end: pass"
rank = os.environ["RANK"]
if rank == "0": exec(burn)
if rank == "2": subprocess.run([sys.executable, "-c", burn], start_new_session=True)
if rank == "3": block = b"x" * 100_000_000
time.sleep(150)
''']
[resources]
ranks_per_node = 4
)");
  std::map<int, Json> ranks;
  const auto are_told_apart = [&] {
    ranks = use_of(world, job);
    const auto is = [&](int rank, bool busy) {
      const auto cores = number_in(ranks.at(rank), "cores");
      return busy ? cores > 0.06 && cores < 2 : cores >= 0 && cores < 0.03;
    };
    return ranks.size() == 4 && is(0, true) && is(1, false) && is(2, true) && is(3, false) &&
           number_in(ranks.at(3), "memory_bytes") > 100e6;
  };
  ASSERT_TRUE(eventually(are_told_apart, 60s)) << Json(ranks);
  EXPECT_LT(number_in(ranks.at(1), "memory_bytes"), 60e6) << ranks.at(1);
  EXPECT_GE(number_in(ranks.at(3), "memory_peak_bytes"), number_in(ranks.at(3), "memory_bytes"));
  EXPECT_GE(number_in(ranks.at(2), "processes"), 2) << "with its child";
  EXPECT_LT(number_in(ranks.at(0), "age_ms"), 30'000);
  EXPECT_TRUE(ranks.at(0).at("step").is_null()) << "the program has said nothing";

  const auto shown = world.show(job).at("ranks");
  EXPECT_GT(shown.at(3).at("use").at("memory_bytes"), 100'000'000) << shown;
  EXPECT_NE(world.cli({"show", job}).out.find("CORES"), std::string::npos);
  const auto table = world.cli({"top", "--sort", "mem"}).out;
  EXPECT_NE(table.find("\n  1    1     3 "), std::string::npos) << "rank 3 is the first line:\n" << table;

  // Samples are in memory alone. The agent tells the next controller what it knows.
  world.kill_daemon();
  world.start_daemon();
  ASSERT_TRUE(eventually(are_told_apart, 60s)) << Json(ranks);

  EXPECT_EQ(world.cli({"cancel", job}).exit, 0);
  world.until_state(job, "cancelled");
  const auto over = use_of(world, job).at(3);
  EXPECT_TRUE(over.at("cores").is_null()) << over;
  EXPECT_GT(number_in(over, "memory_peak_bytes"), 100e6) << "what it once needed stays known";
}

}  // namespace
}  // namespace test
