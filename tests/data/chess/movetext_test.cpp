#include "data/chess/notation.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "data/chess/player.h"

namespace data::chess {
namespace {

TEST(Movetext, IsReadWithAndWithoutNumbers) {
  for (const char* text : {"1. f3 e5 2. g4 Qh4# 0-1", "1.f3 e5 2.g4 Qh4# 0-1", "f3 e5 g4 Qh4 0-1",
                           "1. f3 1... e5\n2. g4\r\n2... Qh4#  0-1\n"}) {
    std::string why;
    const auto line = parse_movetext(Board::start(), text, Notation::kSan, &why);
    ASSERT_TRUE(line) << text << "\n" << why;
    EXPECT_EQ(line->moves.size(), 4);
    EXPECT_EQ(line->result, "0-1");
    EXPECT_EQ(line->last.fen(), "rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3");
    EXPECT_EQ(movetext(Board::start(), line->moves, Notation::kSan), "1. f3 e5 2. g4 Qh4#");
    EXPECT_EQ(movetext(Board::start(), line->moves, Notation::kUci), "f2f3 e7e5 g2g4 d8h4");
  }
}

TEST(Movetext, MayBeginAnywhere) {
  EXPECT_TRUE(parse_movetext(Board::start(), "", Notation::kSan)->moves.empty());
  EXPECT_EQ(parse_movetext(Board::start(), "1. e4 e5 2.", Notation::kSan)->moves.size(), 2)
      << "what a model is given to continue";
  const auto board = *Board::of_fen("4k3/8/8/8/3pP3/8/8/4K3 b - e3 0 41");
  const auto line = parse_movetext(board, "41... dxe3 42. Kd1", Notation::kSan);
  ASSERT_TRUE(line);
  EXPECT_EQ(movetext(board, line->moves, Notation::kSan), "41... dxe3 42. Kd1");
}

// Goal: what is written is read back, whatever happens in a game.
// Method: 1,000 games of the player in both notations; their positions go through a FEN as well.
TEST(Movetext, AThousandGamesAreReadBack) {
  std::size_t castlings = 0, promotions = 0, en_passants = 0, ended = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const auto played = play(seed, {.plies = 100});
    const auto expect_read_back = [&](const std::string& text, Notation notation, std::string_view result) {
      std::string why;
      const auto line = parse_movetext(Board::start(), text, notation, &why);
      ASSERT_TRUE(line) << text << "\n" << why;
      EXPECT_EQ(line->moves, played.moves) << text;
      EXPECT_EQ(line->last, played.last) << text;
      EXPECT_EQ(line->result, result) << text;
    };
    expect_read_back(game(seed, {.plies = 100}), Notation::kSan, played.result);
    expect_read_back(movetext(Board::start(), played.moves, Notation::kUci), Notation::kUci, "");
    auto board = Board::start();
    for (const auto move : played.moves) {
      const auto kind = board.at(move.from).kind;
      castlings += kind == Kind::kKing && std::abs(move.to - move.from) == 2;
      promotions += move.promotion != Kind::kNone;
      en_passants += kind == Kind::kPawn && move.to == board.en_passant();
      board = board.after(move);
      ASSERT_EQ(Board::of_fen(board.fen()), board) << board.fen();
    }
    ended += !played.result.empty();
  }
  EXPECT_GT(castlings, 100);
  EXPECT_GT(promotions, 10);
  EXPECT_GT(en_passants, 0);
  EXPECT_GT(ended, 10);
}

TEST(Movetext, AWrongOneIsRefusedWithPlyValueAndRemedy) {
  const std::pair<const char*, const char*> cases[] = {
      {"1. e4 e5 2. Ke3",
       "ply 3: \"Ke3\" is not a legal move of White in algebraic notation at FEN \"rnbqkbnr/pppp1ppp"},
      {"1. e4 e5 3. Nf3", "ply 3: the number \"3.\" stands where move 2. comes; write 2. or leave numbers out"},
      {"1. e4 2. e5", "ply 2: the number \"2.\" stands where move 1... comes; write 1... or leave numbers out"},
      {"99999999999999999999. e4", "ply 1: the number \"99999999999999999999.\" stands where move 1. comes"},
      {"1. e4 {best} e5", "ply 2: \"{best}\" is a comment; keep only moves, their numbers and the result"},
      {"1. e4 (1. d4) e5", "ply 2: \"(1.\" is a variation; keep only moves, their numbers and the result"},
      {"1. e4! e5", "ply 1: \"e4!\" is an annotation; keep only"},
      {"1. e4 $1 e5", "ply 2: \"$1\" is an annotation; keep only"},
      {"[White \"A\"]\n1. e4", "ply 1: \"[White\" is a tag; keep only"},
      {"1. e4 * e5", "ply 2: \"e5\" follows the result *; give each game a text of its own"},
      {"1. e4 1-0 1. d4", "ply 2: \"1.\" follows the result 1-0; give each game a text of its own"},
      {"1. e4\te5", "ply 1: \"e4?e5\" is not a legal move"},
      {"e2e4", "ply 1: \"e2e4\" is not a legal move of White in algebraic notation"}};
  for (const auto& [text, message] : cases) {
    std::string why;
    EXPECT_FALSE(parse_movetext(Board::start(), text, Notation::kSan, &why)) << text;
    EXPECT_EQ(why.find(message), 0) << text << "\n" << why;
  }
  EXPECT_FALSE(parse_movetext(Board::start(), "e4", Notation::kUci));
  EXPECT_FALSE(parse_movetext(Board::start(), std::string_view("e4\0e5", 5), Notation::kSan));
}

TEST(Movetext, IsCutBeforeAPly) {
  const char* text = "1. e4 e5 2. Nf3 Nc6 1/2-1/2";
  EXPECT_EQ(text_before(text, 0), "1. ");
  EXPECT_EQ(text_before(text, 1), "1. e4 ");
  EXPECT_EQ(text_before(text, 2), "1. e4 e5 2. ");
  EXPECT_EQ(text_before(text, 3), "1. e4 e5 2. Nf3 ");
  EXPECT_EQ(text_before(text, 4), std::nullopt) << "a result is no move";
  EXPECT_EQ(text_before("e2e4 e7e5", 1), "e2e4 ");
  EXPECT_EQ(text_before("1.e4 e5 2.Nf3", 2), "1.e4 e5 2.");
  EXPECT_EQ(text_before("", 0), std::nullopt);
}

}  // namespace
}  // namespace data::chess
