#include "data/chess/player.h"

#include <gtest/gtest.h>

#include "data/chess/notation.h"

namespace data::chess {
namespace {

std::optional<Ending> ending_at(const char* fen) {
  return ending(*Board::of_fen(fen), {});
}

TEST(Endings, CheckmateAndStalemateAreToldApart) {
  EXPECT_EQ(ending_at("R6k/8/6K1/8/8/8/8/8 b - - 0 1"), Ending::kCheckmate);
  EXPECT_EQ(ending_at("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1"), Ending::kStalemate);
  EXPECT_EQ(ending_at("7k/8/6K1/8/8/8/8/R7 b - - 0 1"), std::nullopt);
  EXPECT_EQ(result_of(Ending::kCheckmate, *Board::of_fen("R6k/8/6K1/8/8/8/8/8 b - - 0 1")), "1-0");
  EXPECT_EQ(result_of(Ending::kCheckmate, *Board::of_fen("r6K/8/6k1/8/8/8/8/8 w - - 0 1")), "0-1");
  EXPECT_EQ(result_of(Ending::kStalemate, *Board::of_fen("7k/5Q2/6K1/8/8/8/8/8 b - - 0 1")), "1/2-1/2");
}

TEST(Endings, MaterialIsInsufficientWhereNoMatesExist) {
  for (const char* pieces : {"k6K/8/8/8/8/8/8/8", "k6K/8/8/8/8/8/8/3B4", "k6K/8/8/8/8/8/8/3n4", "k6K/8/8/8/8/8/8/3B1b2",
                             "k6K/8/8/8/8/8/8/1B1B1B2"}) {
    EXPECT_EQ(ending_at((std::string(pieces) + " w - - 0 1").c_str()), Ending::kInsufficientMaterial) << pieces;
  }
  for (const char* pieces :
       {"k6K/8/8/8/8/8/P7/8", "k6K/8/8/8/8/8/8/3R4", "k6K/8/8/8/8/8/8/3q4", "k6K/8/8/8/8/8/8/3BB3",
        "k6K/8/8/8/8/8/8/2NN4", "k6K/8/8/8/8/8/8/2Nn4", "k6K/8/8/8/8/8/8/2Nb4", "k6K/8/8/8/8/8/8/3Bb3"}) {
    EXPECT_EQ(ending_at((std::string(pieces) + " w - - 0 1").c_str()), std::nullopt) << pieces;
  }
}

TEST(Endings, FiftyMovesOfEachColorWithoutCaptureOrPawnAreADraw) {
  EXPECT_EQ(ending_at("k6K/8/8/8/8/8/P7/8 w - - 99 80"), std::nullopt);
  EXPECT_EQ(ending_at("k6K/8/8/8/8/8/P7/8 w - - 100 80"), Ending::kFiftyMoves);
  EXPECT_EQ(ending_at("R6k/8/6K1/8/8/8/8/8 b - - 100 80"), Ending::kCheckmate) << "which comes before the draw";
}

/// The endings after each of these moves from a position.
std::vector<std::optional<Ending>> endings_after(const char* fen, std::initializer_list<const char*> moves) {
  auto board = *Board::of_fen(fen);
  std::vector<Board> earlier;
  std::vector<std::optional<Ending>> found;
  for (const char* text : moves) {
    earlier.push_back(board);
    board = board.after(*of_uci(board, text));
    found.push_back(ending(board, earlier));
  }
  return found;
}

TEST(Endings, TheThirdTimeOfAPositionIsADraw) {
  std::vector<std::optional<Ending>> expected(8);
  expected[7] = Ending::kThreefoldRepetition;
  EXPECT_EQ(endings_after("rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1",
                          {"g1f3", "g8f6", "f3g1", "f6g8", "g1f3", "g8f6", "f3g1", "f6g8"}),
            expected);
}

TEST(Endings, APositionWithOtherCastlingRightsIsAnotherPosition) {
  std::vector<std::optional<Ending>> expected(9);
  expected[8] = Ending::kThreefoldRepetition;
  EXPECT_EQ(endings_after("4k2r/8/8/8/8/8/8/4K2R w K - 0 1",
                          {"h1h2", "h8h7", "h2h1", "h7h8", "h1h2", "h8h7", "h2h1", "h7h8", "h1h2"}),
            expected)
      << "the first position comes three times, but only once with the right to castle";
}

}  // namespace
}  // namespace data::chess
