// Goal: ranks that hear of a request to record steps, each in its own step, record the same steps once, and say what
// came of it. Method: Trainers in this process, one thread per rank.
#include "worker/train/step_trace.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "tests/worker/trainer_ranks.h"

namespace worker::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

/// A rank hears of the request from this step on.
std::function<std::optional<agent::rank::TraceWish>(int)> heard_from(int step, agent::rank::TraceWish wish) {
  return [=](int now) { return now >= step ? std::optional(wish) : std::nullopt; };
}

/// The names of the files that were written.
std::set<std::string> traces_of(const RunConfig& config) {
  std::set<std::string> names;
  const auto folder = StepTrace::file(config, 1, 0).parent_path();
  if (!std::filesystem::exists(folder)) return names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

TEST(TraceRequests, AreAgreedOnByAllRanksThoughTheyHearInDifferentSteps) {
  const TemporaryFolder folder;
  std::vector<Listener> ranks(2);
  ranks[1].on_trace = heard_from(2, {7, 0, 2});
  ranks[0].on_trace = heard_from(6, {7, 0, 2});
  const RunConfig config = run_of(folder, R"(,"steps":8)");
  train(config, ranks);
  EXPECT_THAT(traces_of(config),
              ElementsAre("step-3.rank0.json", "step-3.rank1.json", "step-4.rank0.json", "step-4.rank1.json"));
  for (const auto& rank : ranks) {
    ASSERT_EQ(rank.traces.size(), 3U) << "agreed, and once after each file";
    EXPECT_EQ(rank.traces[0].first, 3);
    EXPECT_FALSE(rank.traces[0].over);
    const agent::rank::TraceReport& last = rank.traces[2];
    EXPECT_EQ(last.number, 7U);
    EXPECT_EQ(last.steps, 2);
    EXPECT_THAT(last.steps_written, ElementsAre(3, 4));
    EXPECT_EQ(last.problem, "");
    EXPECT_TRUE(last.over);
  }
}

TEST(TraceRequests, MayNameTheFirstStep) {
  const TemporaryFolder folder;
  std::vector<Listener> ranks(2);
  ranks[0].on_trace = heard_from(1, {7, 5, 1});
  const RunConfig config = run_of(folder, R"(,"steps":6)");
  train(config, ranks);
  EXPECT_THAT(traces_of(config), ElementsAre("step-5.rank0.json", "step-5.rank1.json"));
}

// Two requests at once come after a restart of the controller, which knew of neither.
TEST(TraceRequests, OfTwoAtOnceAreRecordedOneAfterTheOther) {
  const TemporaryFolder folder;
  std::vector<Listener> ranks(2);
  ranks[0].on_trace = heard_from(1, {5, 0, 1});
  ranks[1].on_trace = heard_from(1, {9, 0, 1});
  const RunConfig config = run_of(folder, R"(,"steps":6)");
  train(config, ranks);
  for (const auto& rank : ranks) {
    std::vector<std::pair<std::uint64_t, std::int64_t>> done;
    for (const auto& report : rank.traces)
      if (report.over) done.emplace_back(report.number, report.first);
    EXPECT_THAT(done, ElementsAre(std::pair(9U, 2), std::pair(5U, 4)));
  }
}

TEST(TraceRequests, OfAStepThatIsPastRecordNothingAndSaySo) {
  const TemporaryFolder folder;
  std::vector<Listener> ranks(1);
  ranks[0].on_trace = heard_from(4, {7, 4, 1});
  const RunConfig config = run_of(folder, R"(,"steps":6)");
  train(config, ranks);
  EXPECT_THAT(traces_of(config), IsEmpty());
  ASSERT_EQ(ranks[0].traces.size(), 1U);
  EXPECT_TRUE(ranks[0].traces[0].over);
  EXPECT_EQ(ranks[0].traces[0].problem,
            "step 4 had begun when the ranks heard of the request, in step 4; ask for a later step, or for none");
}

TEST(TraceRequests, EndWithTheTraining) {
  const TemporaryFolder folder;
  std::vector<Listener> ranks(1);
  ranks[0].on_trace = heard_from(3, {7, 0, 4});
  const RunConfig config = run_of(folder, R"(,"steps":5)");
  train(config, ranks);
  const agent::rank::TraceReport& cut = ranks[0].traces.back();
  EXPECT_THAT(cut.steps_written, ElementsAre(4, 5));
  EXPECT_TRUE(cut.over);
  EXPECT_EQ(cut.problem, "the training ended with step 5, 2 steps too early");
  std::vector<Listener> late(1);
  late[0].on_trace = heard_from(5, {8, 0, 1});
  train(run_of(folder, R"(,"steps":5)", "", "others"), late);
  ASSERT_EQ(late[0].traces.size(), 1U);
  EXPECT_EQ(late[0].traces[0].problem, "the training ends after step 5");
}

TEST(TraceRequests, ThatFindNoRoomSayWhyAndTheTrainingGoesOn) {
  const TemporaryFolder folder;
  std::vector<Listener> ranks(2);
  for (auto& rank : ranks) rank.on_trace = heard_from(1, {7, 3, 1});
  const RunConfig config = run_of(folder, R"(,"steps":4)");
  const auto full = StepTrace::file(config, 3, 1);
  std::filesystem::create_directories(full.parent_path());
  std::filesystem::create_symlink("/dev/full", full);
  const auto outcomes = train(config, ranks);
  EXPECT_EQ(outcomes[1].code, spec::kExitDone);
  EXPECT_THAT(ranks[0].traces.back().steps_written, ElementsAre(3));
  const agent::rank::TraceReport& failed = ranks[1].traces.back();
  EXPECT_THAT(failed.steps_written, IsEmpty());
  EXPECT_TRUE(failed.over);
  EXPECT_EQ(failed.problem, "no trace in " + full.native() + ": No space left on device");
  EXPECT_FALSE(std::filesystem::is_symlink(full)) << "no part of a file stays";
}

TEST(TraceRequests, ThatHaveNoFolderSayWhy) {
  const TemporaryFolder folder;
  std::vector<Listener> ranks(1);
  ranks[0].on_trace = heard_from(1, {7, 0, 2});
  const RunConfig config = run_of(folder, R"(,"steps":4)");
  const auto place = StepTrace::file(config, 3, 0).parent_path();
  std::filesystem::create_directories(place.parent_path());
  std::ofstream(place) << "a file";
  train(config, ranks);
  EXPECT_THAT(ranks[0].traces.back().problem, HasSubstr("no trace in " + place.native() + "/step-2.rank0.json: "));
  EXPECT_TRUE(ranks[0].traces.back().over);
}

// The ranks tell each other three numbers in the step in which one has heard of a request.
TEST(TraceRequests, CostOneSmallCollectiveInOneStep) {
  const TemporaryFolder folder;
  std::vector<Listener> plain(2), traced(2);
  traced[0].on_trace = heard_from(1, {7, 2, 1});
  train(run_of(folder, R"(,"steps":3)"), plain);
  train(run_of(folder, R"(,"steps":3)", "", "others"), traced);
  std::vector<std::int64_t> more;
  for (std::size_t step = 0; step < 3; ++step)
    more.push_back(traced[0].steps[step].bytes_communicated - plain[0].steps[step].bytes_communicated);
  EXPECT_THAT(more, UnorderedElementsAre(0, 0, 3 * 8));
}

}  // namespace
}  // namespace worker::testing
