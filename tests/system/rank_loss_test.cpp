// Goal: losing a rank costs one attempt, never the job, and the controller knows at once.
// Method: real musterd, agent, workers and signals on the built-in text; the judge of a resume is an uninterrupted
// run of the same job, whose last checkpoint must be the same to the bit.
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <set>
#include <stdexcept>

#include "cli/cli_text.h"
#include "tests/system/world.h"

namespace test {
namespace {

/// Milliseconds since 1970, as events have them.
std::int64_t wall_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

/// From a moment until musterd wrote down the first event of a kind: by its own record, for a look through the command
/// line takes a sanitized program on a busy machine half a second by itself.
double seconds_until_known(const Json& events, const std::string& type, std::int64_t since_ms) {
  const auto event = std::ranges::find_if(events, [&](const Json& each) { return each.at("type") == type; });
  if (event == events.end()) throw std::runtime_error("no event " + type + " in " + events.dump(1));
  const auto took = cli::time_ms(event->at("at")) - since_ms;
  if (took < 0) throw std::runtime_error("known before it happened: " + event->dump());
  return static_cast<double>(took) / 1000;
}

bool attempt_has_ended(const Json& job, std::size_t index) {
  return job.at("attempts").size() > index && job.at("attempts").at(index).at("state") == "ended";
}

/// The newest step that the attempt told the controller it has saved.
int last_checkpoint_of_attempt(const Json& events, int attempt) {
  int step = -1;
  for (const auto& event : events) {
    if (event.at("type") != "checkpoint_saved" || event.at("attempt") != attempt) continue;
    step = Json::parse(event.at("payload").get<std::string>()).at("step");
  }
  return step;
}

std::filesystem::path newest_checkpoint(const std::filesystem::path& folder) {
  std::set<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (std::filesystem::exists(entry.path() / "manifest.json")) found.insert(entry.path());
  }
  return found.empty() ? std::filesystem::path() : *found.rbegin();
}

void expect_same_tensors(const std::filesystem::path& left, const std::filesystem::path& right) {
  ASSERT_EQ(left.filename(), right.filename());
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(left)) {
    if (entry.path().extension() != ".safetensors") continue;
    EXPECT_TRUE(read_file(entry.path()) == read_file(right / entry.path().filename())) << entry.path().filename();
    ++compared;
  }
  EXPECT_EQ(compared, 2);
}

TEST(RankLoss, AKilledRankResumesFromTheLastCheckpointAndEndsBitEqualToAnUninterruptedRun) {
  World world;
  world.start_daemon();
  const auto calm = world.submit(training_job({.steps = 40, .every_steps = 10}));
  world.until_state(calm, "succeeded");

  const auto job = world.submit(training_job({.steps = 40, .every_steps = 10, .step_delay_ms = 100}));
  // Between two saves: a checkpoint whose saver is lost before it can tell of it is newer than any that was told.
  const auto before = world.until_step(job, 22);
  const auto killed = wall_ms();
  signal_rank(before, 1, SIGKILL);
  world.until(job, [](const Json& view) { return view.at("attempts")[0].at("cause") == "failed"; });
  EXPECT_LT(seconds_until_known(world.json({"events", job}), "rank_exited", killed), 0.5);

  const auto after = world.until_state(job, "succeeded");
  ASSERT_EQ(after.at("attempts").size(), 2U);
  EXPECT_EQ(after.at("attempts")[0].at("cause"), "failed");
  EXPECT_NE(after.at("attempts")[0].at("reason").get<std::string>().find("rank 1 killed by SIGKILL"),
            std::string::npos);
  EXPECT_EQ(after.at("attempts")[1].at("cause"), "completed");
  const int resumed = after.at("attempts")[1].at("resumed_from_step");
  EXPECT_EQ(resumed, last_checkpoint_of_attempt(world.json({"events", job}), 1));

  const auto rows = world.metrics(job);
  const auto first = std::find_if(rows.begin(), rows.end(), [](const Json& row) { return row.at("attempt") == 2; });
  ASSERT_NE(first, rows.end());
  EXPECT_EQ(first->at("step"), resumed + 1);
  for (const char* number : {"tokens_per_s", "step_ms", "memory_peak_bytes", "bytes_communicated"}) {
    EXPECT_GT(first->at(number).get<double>(), 0) << number;
  }
  EXPECT_LT(last(rows).at("loss").get<double>(), 0.8 * rows[0].at("loss").get<double>());
  expect_same_tensors(newest_checkpoint(world.checkpoints(calm)), newest_checkpoint(world.checkpoints(job)));
}

// Heartbeats carry the rows of steps. Here a rank that is killed has not sent one since its first step, but has saved.
TEST(RankLoss, NoStepBelowACheckpointIsMissingThoughNoHeartbeatCarriedIt) {
  World world;
  world.start_daemon();
  const auto job = world.submit(training_job({.steps = 20, .every_steps = 10, .step_delay_ms = 400, .more = R"(
[liveness]
heartbeat_interval = "1m"
silent_after = "5m"
)"}));
  const auto before = world.until(job, [&](const Json&) {
    return std::filesystem::exists(world.checkpoints(job)) && !newest_checkpoint(world.checkpoints(job)).empty();
  });
  signal_rank(before, 0, SIGKILL);
  const auto after = world.until_state(job, "succeeded");
  ASSERT_EQ(after.at("attempts").size(), 2U);
  EXPECT_EQ(after.at("attempts")[1].at("resumed_from_step"), 10);
  expect_every_step(world.metrics(job), 20);
}

TEST(RankLoss, AStoppedRankIsCalledSilentWithinThreeSeconds) {
  World world;
  world.start_daemon();
  const auto job = world.submit(training_job({.steps = 400, .every_steps = 10, .step_delay_ms = 50}));
  const auto before = world.until_step(job, 12);
  const auto stopped = wall_ms();
  signal_rank(before, 0, SIGSTOP);
  world.until(job, [](const Json& view) { return view.at("attempts")[0].at("cause") == "rank_silent"; });
  EXPECT_LT(seconds_until_known(world.json({"events", job}), "rank_silent", stopped), 3.5) << "with the stacks";
  const auto again = world.until(job, [](const Json& view) {
    return view.at("attempts").size() == 2 && view.at("attempts")[1].at("state") == "running" &&
           view.at("attempts")[1].at("resumed_from_step") >= 10;
  });
  EXPECT_TRUE(attempt_has_ended(again, 0));
  EXPECT_NE(again.at("attempts")[0].at("reason").get<std::string>().find("rank 0"), std::string::npos);
}

TEST(RankLoss, ARankAskedToLeaveSavesAndTheJobComesBackWhereItLeft) {
  World world;
  world.start_daemon();
  const auto job = world.submit(training_job({.steps = 60, .every_steps = 1000, .step_delay_ms = 50}));
  signal_rank(world.until_step(job, 7), 1, SIGTERM);
  const auto after = world.until_state(job, "succeeded");
  ASSERT_EQ(after.at("attempts").size(), 2U);
  EXPECT_EQ(after.at("attempts")[0].at("cause"), "preempted");
  const int resumed = after.at("attempts")[1].at("resumed_from_step");
  EXPECT_GE(resumed, 7);
  std::vector<std::pair<int, int>> steps;
  for (const auto& row : world.metrics(job)) steps.emplace_back(row.at("attempt"), row.at("step"));
  std::vector<std::pair<int, int>> wanted;
  for (int step = 1; step <= 60; ++step) wanted.emplace_back(step <= resumed ? 1 : 2, step);
  EXPECT_EQ(steps, wanted) << "no step lost, none done twice";
}

TEST(RankLoss, TheBudgetOfAFailingJobEndsIt) {
  World world;
  world.start_daemon();
  const auto job = world.submit(shell_job("exit 3", "max_failed = 2\n"));
  const auto after = world.until_state(job, "failed");
  EXPECT_EQ(after.at("attempts").size(), 3U);
  EXPECT_NE(after.at("reason").get<std::string>().find("limit 2"), std::string::npos) << after.at("reason");
  EXPECT_EQ(world.cli({"wait", job}).exit, 1);
}

}  // namespace
}  // namespace test
