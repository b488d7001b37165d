// Goal: stacks are kept with their attempt, whoever brings them and whatever happens meanwhile.
// Method: the real keeper without its thread, a clock that the test owns, a folder as the data folder.
#include "controller/stacks/stack_keeper.h"

#include <gmock/gmock.h>

#include <fstream>

#include "agent/protocol/files.h"
#include "tests/manual_clock.h"
#include "tests/temporary_folder.h"

namespace stacks {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

constexpr core::AttemptKey kKey{7, 2};

class Keeper : public testing::Test {
 protected:
  Keeper() { std::filesystem::create_directories(attempt_); }
  std::unique_ptr<StackKeeper> make() {
    return std::make_unique<StackKeeper>(
        StackKeeper::Parts{clock_, common::DataFolder(folder_.path()),
                           [this](const auto&, std::uint64_t number) {
                             asked_.push_back(number);
                             return there_;
                           },
                           [](const auto&, core::RankNumber rank) { return "why " + std::to_string(rank); },
                           [this](const auto& key) { changed_.push_back(key); }},
        false);
  }
  /// Writes a rank's stack as an agent of an earlier muster does.
  void agent_writes(std::uint64_t number, core::RankNumber rank, const std::string& text) {
    const auto folder = agent::protocol::stack_folder(attempt_, number);
    std::filesystem::create_directories(folder);
    test::write_file(folder / agent::protocol::stack_file_name(rank), text);
  }

  test::TemporaryFolder folder_;
  std::filesystem::path attempt_ = common::DataFolder(folder_.path()).attempt(kKey);
  common::ManualClock clock_;
  bool there_ = true;
  std::vector<std::uint64_t> asked_;
  std::vector<core::AttemptKey> changed_;
  std::unique_ptr<StackKeeper> keeper_ = make();
};

TEST_F(Keeper, KeepsWhatAgentsWriteAndWhatTheyBring) {
  const auto number = keeper_->ask(kKey, "asked", "ann", 2);
  EXPECT_THAT(asked_, ElementsAre(number));
  EXPECT_TRUE(keeper_->given(kKey));
  EXPECT_FALSE(keeper_->sets(kKey).back().over) << "before anything is on the disk";
  agent_writes(number, 0, "of rank 0");
  keeper_->take(kKey, number, 1, "of rank 1");
  keeper_->poll();
  EXPECT_FALSE(keeper_->given(kKey));
  EXPECT_THAT(changed_, ElementsAre(kKey));
  const auto sets = keeper_->sets(kKey);
  ASSERT_EQ(sets.size(), 1U);
  EXPECT_EQ(sets[0].number, number);
  EXPECT_EQ(sets[0].why, "asked");
  EXPECT_EQ(sets[0].user, "ann");
  EXPECT_EQ(sets[0].at_ms, clock_.wall().time_since_epoch().count());
  EXPECT_TRUE(sets[0].over);
  EXPECT_THAT(sets[0].given, ElementsAre(0, 1));
  EXPECT_EQ(keeper_->text(kKey, number, 0), "of rank 0");
  EXPECT_EQ(keeper_->text(kKey, number, 1), "of rank 1");
}

TEST_F(Keeper, SaysWhyARankGaveNoneAndKeepsWhatComesLate) {
  const auto number = keeper_->ask(kKey, "suspected", "", 3);
  agent_writes(number, 1, "of rank 1");
  keeper_->poll();
  clock_.advance(StackKeeper::kPatience - 1ms);
  keeper_->poll();
  EXPECT_THAT(keeper_->given(kKey), ::testing::Optional(ElementsAre(1)));
  clock_.advance(1ms);
  keeper_->poll();
  EXPECT_FALSE(keeper_->given(kKey));
  EXPECT_THAT(keeper_->sets(kKey).front().none, ElementsAre(Pair(0, "why 0"), Pair(2, "why 2")));
  keeper_->take(kKey, number, 2, "late");
  keeper_->poll();
  EXPECT_THAT(keeper_->sets(kKey).front().none, ElementsAre(Pair(0, "why 0")));
  EXPECT_EQ(keeper_->text(kKey, number, 2), "late");
}

TEST_F(Keeper, JoinsWhatIsUnderWayAndGivesLaterNumbersAfterwards) {
  const auto first = keeper_->ask(kKey, "suspected", "", 1);
  EXPECT_EQ(keeper_->ask(kKey, "asked", "ann", 1), first);
  EXPECT_NE(keeper_->ask({8, 1}, "asked", "ann", 1), first);
  agent_writes(first, 0, "x");
  keeper_->poll();
  EXPECT_GT(keeper_->ask(kKey, "asked", "ann", 1), first) << "in the same millisecond";
}

TEST_F(Keeper, WithoutAnybodyToAskThereIsNoSet) {
  there_ = false;
  EXPECT_EQ(keeper_->ask(kKey, "asked", "ann", 1), 0U);
  keeper_->poll();
  EXPECT_FALSE(keeper_->given(kKey));
  EXPECT_THAT(keeper_->sets(kKey), IsEmpty());
}

TEST_F(Keeper, AfterACrashTheSetIsOverAndItsStacksAreThere) {
  const auto number = keeper_->ask(kKey, "before_end", "", 2);
  agent_writes(number, 0, "x");
  keeper_->poll();
  keeper_ = make();
  const auto sets = keeper_->sets(kKey);
  ASSERT_EQ(sets.size(), 1U);
  EXPECT_TRUE(sets[0].over);
  EXPECT_THAT(sets[0].given, ElementsAre(0));
  keeper_->take(kKey, number, 1, "of rank 1");
  keeper_->poll();
  EXPECT_THAT(keeper_->sets(kKey).front().given, ElementsAre(0, 1)) << "its task tells it to the next controller";
}

TEST_F(Keeper, AStackThatNobodyAskedForIsDropped) {
  keeper_->take(kKey, 12345, 0, "a stranger's");
  keeper_->poll();
  EXPECT_THAT(keeper_->sets(kKey), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(agent::protocol::stack_folder(attempt_, 12345)));
}

TEST_F(Keeper, TheFolderOfARemovedJobDoesNotComeBack) {
  const auto number = keeper_->ask(kKey, "asked", "ann", 1);
  std::filesystem::remove_all(attempt_);
  keeper_->take(kKey, number, 0, "x");
  clock_.advance(StackKeeper::kPatience);
  keeper_->poll();
  EXPECT_FALSE(std::filesystem::exists(attempt_));
}

TEST_F(Keeper, KeepsAFewSetsAndThoseOfSuspicionsLongest) {
  std::vector<std::uint64_t> numbers;
  for (std::size_t i = 0; i < StackKeeper::kMostKept + 2; ++i) {
    numbers.push_back(keeper_->ask(kKey, i == 0 ? "suspected" : "asked", "", 1));
    agent_writes(numbers.back(), 0, "x");
    keeper_->poll();
    clock_.advance(1s);
  }
  const auto sets = keeper_->sets(kKey);
  ASSERT_EQ(sets.size(), StackKeeper::kMostKept);
  EXPECT_EQ(sets.front().number, numbers.front());
  EXPECT_EQ(sets[1].number, numbers[3]);
  EXPECT_EQ(sets.back().number, numbers.back());
}

TEST_F(Keeper, ASetThatMakesNoSenseIsPassedOver) {
  agent_writes(5, 0, "x");
  test::write_file(agent::protocol::stack_folder(attempt_, 5) / agent::protocol::kStackSetFile, "{\"number\":");
  EXPECT_THAT(keeper_->sets(kKey), IsEmpty());
}

}  // namespace
}  // namespace stacks
