#include "data/chess/player.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <stdexcept>

namespace data::chess {
namespace {

TEST(Player, EqualSeedsPlayEqualGamesOnEveryMachine) {
  EXPECT_EQ(game(1, {.plies = 12}), "1. d4 d5 2. Bd2 Nc6 3. a3 Nxd4 4. Bb4 Bg4 5. Qxd4 c6 6. Qxg4 Nf6");
  EXPECT_EQ(game(1, {.plies = 4, .notation = Notation::kUci}), "d2d4 d7d5 c1d2 b8c6");
}

TEST(Player, AShorterGameIsTheBeginOfALongerOne) {
  const auto longer = game(3, {.plies = 40});
  EXPECT_EQ(longer.find(game(3, {.plies = 10})), 0) << longer;
}

TEST(Player, ThousandSeedsPlayThousandGames) {
  std::set<std::string> games;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) games.insert(game(seed, {.plies = 20}));
  EXPECT_EQ(games.size(), 1000);
}

TEST(Player, HasNoMorePliesThanAsked) {
  EXPECT_EQ(play(1, {.plies = 1}).moves.size(), 1);
  EXPECT_EQ(play(1).moves.size(), 60);
  EXPECT_EQ(play(1).result, "") << "because the game is not over";
}

TEST(Player, ATemperatureOfZeroTakesOneOfTheBestMoves) {
  std::set<std::string> first;
  for (std::uint64_t seed = 0; seed < 100; ++seed) first.insert(game(seed, {.plies = 1, .temperature = 0}));
  EXPECT_EQ(first, (std::set<std::string>{"1. Nc3", "1. Nf3"}));
}

TEST(Player, TellsTheResultOfAGameThatIsOver) {
  std::set<std::string_view> results;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const auto played = play(seed, {.plies = 300});
    results.insert(played.result);
    EXPECT_TRUE(!played.result.empty() || played.moves.size() == 300) << seed;
    EXPECT_TRUE(played.result == "1/2-1/2" || played.last.legal_moves().empty() == !played.result.empty()) << seed;
  }
  EXPECT_TRUE(results.contains("1-0") && results.contains("0-1") && results.contains("1/2-1/2"));
}

// Captures are worth a pawn or more, so a player that sees them takes nearly all that is free.
TEST(Player, ALowerTemperatureCapturesMore) {
  const auto captures = [](double temperature) {
    std::int64_t count = 0;
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      for (const char c : game(seed, {.plies = 40, .temperature = temperature})) count += c == 'x';
    }
    return count;
  };
  EXPECT_GT(captures(0.35), captures(100) * 5 / 4);
}

TEST(Player, OptionsOutsideTheirRangeAreRefused) {
  for (const int plies : {0, -1, 1001}) EXPECT_THROW(play(1, {.plies = plies}), std::invalid_argument) << plies;
  for (const double temperature : {-0.1, 100.5, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THROW(play(1, {.temperature = temperature}), std::invalid_argument) << temperature;
  }
  try {
    game(1, {.plies = 1001});
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(), "chess player: 1001 plies; ask for 1 to 1000");
  }
}

}  // namespace
}  // namespace data::chess
