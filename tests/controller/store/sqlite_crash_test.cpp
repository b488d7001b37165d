// Goal: an acknowledged commit survives kill -9, and no commit is stored twice or in part.
// Method: a child process appends commits and acknowledges each through a pipe. The test kills the child after a random
// number of acknowledgements, so the kill falls anywhere in the next append. The next child opens the database again.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <random>

#include "controller/store/sqlite_store.h"
#include "tests/controller/store/saga.h"
#include "tests/temporary_folder.h"

namespace test {
namespace {

constexpr int kRounds = 25;
constexpr std::size_t kGroup = 3;

/// Appends groups of one job's checkpoints for ever. Writes the job's version to the pipe after each group.
[[noreturn]] void append_for_ever(const std::filesystem::path& file, int pipe) {
  const auto store = store::open_sqlite_store(file);
  Story story(1);
  if (const auto job = store->load(1)) story.job = *job;
  for (;;) {
    std::vector<store::Commit> group;
    while (group.size() < kGroup) {
      if (story.job.version == 0) {
        story.tell(submitted(1));
      } else if (story.job.attempts.empty()) {
        story.tell(core::AttemptLaunched{1, "h", "n", {}});
      } else {
        story.tell(core::CheckpointSaved{1, story.job.version});
      }
      group.push_back({story.events.back(), store::shared(story.last), "", "{}"});
    }
    store->append(group);
    const store::MetricRow row{.job = 1, .attempt = 1, .rank = 0, .step = story.job.version};
    store->add_metrics({&row, 1});
    const std::int64_t acknowledged = story.job.version;
    if (write(pipe, &acknowledged, sizeof acknowledged) != sizeof acknowledged) _exit(1);
  }
}

/// Runs the child until it has acknowledged `count` groups, and for `longer` microseconds more. Returns the newest
/// acknowledged version.
std::int64_t run_and_kill(const std::filesystem::path& file, int count, useconds_t longer) {
  std::array<int, 2> pipe_ends{};
  if (pipe(pipe_ends.data()) != 0) return -1;
  const pid_t child = fork();
  if (child == 0) {
    close(pipe_ends[0]);
    append_for_ever(file, pipe_ends[1]);
  }
  close(pipe_ends[1]);
  std::int64_t newest = 0;
  std::int64_t word = 0;
  for (int i = 0; i < count && read(pipe_ends[0], &word, sizeof word) == sizeof word; ++i) newest = word;
  usleep(longer);  // the kill must fall at a random moment
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  while (read(pipe_ends[0], &word, sizeof word) == sizeof word) newest = word;
  close(pipe_ends[0]);
  return newest;
}

TEST(SqliteCrash, AcknowledgedCommitsSurviveAKillAndNoneIsThereTwice) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "muster.db";
  std::mt19937 random(7);
  std::int64_t before = 0;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    // With count 0 the kill may fall while the child opens or migrates the database.
    const int count = round == 0 ? 0 : static_cast<int>(random() % 8);
    const std::int64_t acknowledged = run_and_kill(file, count, static_cast<useconds_t>(random() % 20000));
    ASSERT_GE(acknowledged, 0);
    const auto store = store::open_sqlite_store(file);
    const auto job = store->load(1);
    const std::int64_t version = job ? job->version : 0;
    EXPECT_GE(version, std::max(acknowledged, before)) << "something acknowledged is lost";
    EXPECT_EQ(version % static_cast<std::int64_t>(kGroup), 0) << "half a group";
    EXPECT_EQ(store->last_event_id(), version) << "ids without gaps, none twice";
    const auto events = store->events(1, 0, 1000000);
    for (std::size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i].version, static_cast<std::int64_t>(i + 1));
    for (const auto& row : store->list({})) EXPECT_EQ(row.version, version) << "the projection is of the last event";
    if (acknowledged > 0) {
      const auto steps = store->metrics(1, 1, 1, acknowledged - 1, 1);
      EXPECT_TRUE(!steps.empty() && steps[0].row.step == acknowledged) << "an acknowledged metric is lost";
    }
    before = version;
  }
  EXPECT_GT(before, 100) << "the children were killed before they wrote anything";
}

}  // namespace
}  // namespace test
