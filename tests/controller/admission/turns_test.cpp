// Goal: whoever shares a musterd is served soon, however much others want.
// Method: chance pushes and takes with a seed; the promise is counted at each take.
#include "controller/actions/action_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace actions {
namespace {

using ::testing::ElementsAre;

std::vector<int> take_all(Turns<int>& turns) {
  std::vector<int> taken;
  while (const auto next = turns.take()) taken.push_back(next->work);
  return taken;
}

TEST(Turns, OfOneUserAreInTheOrderOfTheirAge) {
  Turns<int> turns(1);
  for (int i = 1; i <= 4; ++i) turns.push("ada", false, i);
  EXPECT_THAT(take_all(turns), ElementsAre(1, 2, 3, 4));
}

TEST(Turns, OneJobBesideFiveThousandOfAnotherUserIsNext) {
  Turns<int> turns(1);
  for (int i = 0; i < 5000; ++i) turns.push("ada", false, i);
  turns.take();
  turns.push("bob", false, -1);
  EXPECT_EQ(turns.take()->work, 1) << "it was her turn";
  EXPECT_EQ(turns.take()->work, -1);
  EXPECT_EQ(turns.take()->work, 2);
}

TEST(Turns, NoUserWaitsForMoreThanOnePieceOfEachOther) {
  constexpr int kUsers = 7;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Turns<std::pair<int, int>> turns(1);
    std::vector<int> pushed(kUsers), taken(kUsers);
    std::vector<int> others_since(kUsers);  // pieces of others since the user's oldest piece waits at the head
    for (int step = 0; step < 2000; ++step) {
      if (random() % 5 < 3) {
        // One user pushes most of all.
        const auto user = static_cast<int>(random() % 2 == 0 ? 0 : random() % kUsers);
        const auto at = static_cast<std::size_t>(user);
        if (pushed[at] == taken[at]) others_since[at] = 0;
        turns.push(std::to_string(user), false, {user, pushed[at]++});
        continue;
      }
      const auto next = turns.take();
      if (!next) {
        EXPECT_EQ(pushed, taken) << "nothing waits while somebody could take it";
        continue;
      }
      const auto [user, number] = next->work;
      const auto at = static_cast<std::size_t>(user);
      ASSERT_EQ(number, taken[at]++) << "in the order of their age";
      ASSERT_LT(others_since[at], kUsers);
      others_since[at] = 0;
      for (std::size_t other = 0; other < kUsers; ++other) {
        if (other != at && pushed[other] > taken[other]) ++others_since[other];
      }
    }
  }
}

TEST(Turns, LongPiecesLeaveSomebodyFree) {
  Turns<int> turns(2);
  for (int i = 1; i <= 4; ++i) turns.push("ada", true, i);
  EXPECT_EQ(turns.take()->work, 1);
  EXPECT_EQ(turns.take()->work, 2);
  EXPECT_FALSE(turns.take()) << "the last one who is free waits for something short";
  turns.push("ada", false, 5);
  EXPECT_FALSE(turns.take()) << "hers go in their order";
  turns.push("bob", false, 6);
  EXPECT_EQ(turns.take()->work, 6);
  turns.ended();
  EXPECT_EQ(turns.take()->work, 3);
}

}  // namespace
}  // namespace actions
