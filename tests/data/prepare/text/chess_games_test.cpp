#include "data/prepare/text/text_source.h"

#include <gmock/gmock.h>

#include <set>

#include "data/chess/notation.h"

namespace data::prepare {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> games(const ChessGamesOptions& options) {
  std::vector<std::string> out;
  open_chess_games(options).read(0, [&](const TextRecord& record) { out.emplace_back(record.text); });
  return out;
}

TEST(ChessGames, AreLegalAndDiffer) {
  const auto all = games({.games = 30, .seed = 4});
  EXPECT_EQ(all.size(), 30U);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), 30U);
  for (const auto& game : all) {
    std::string why;
    EXPECT_TRUE(data::chess::parse_movetext(data::chess::Board::start(), game, data::chess::Notation::kSan, &why))
        << why;
  }
}

TEST(ChessGames, DependOnSeedAndNumberAlone) {
  const auto some = games({.games = 3, .seed = 4});
  const auto more = games({.games = 9, .seed = 4});
  EXPECT_TRUE(std::equal(some.begin(), some.end(), more.begin()));
  EXPECT_EQ(chess_game({.seed = 4}, 2), some[2]);
  EXPECT_NE(chess_game({.seed = 5}, 2), some[2]);
  EXPECT_EQ(chess_game({.player = {.plies = 4}}, 0), "1. Nc3 g6 2. Nf3 c6");
}

TEST(ChessGames, AreCutIntoPartsAndDescribed) {
  const auto source = open_chess_games({.games = 20'001, .seed = 1, .player = {.plies = 1}});
  EXPECT_EQ(source.parts, 3);
  int count = 0;
  source.read(2, [&](const TextRecord&) { ++count; });
  EXPECT_EQ(count, 1);
  EXPECT_THAT(source.description, HasSubstr("games=20001 seed=1 plies=1 temperature=0.34999999999999998 notation=san"));
  EXPECT_THAT(open_chess_games({.player = {.notation = data::chess::Notation::kUci}}).description,
              HasSubstr("notation=uci"));
  EXPECT_THROW(open_chess_games({.games = 0}), std::runtime_error);
  EXPECT_THROW(open_chess_games({.player = {.plies = 0}}), std::runtime_error);
}

}  // namespace
}  // namespace data::prepare
