#include "data/chess/notation.h"

#include <gtest/gtest.h>

#include <set>

#include "data/chess/player.h"

namespace data::chess {
namespace {

Board board_of(std::string_view fen) {
  std::string why;
  const auto board = Board::of_fen(fen, &why);
  EXPECT_TRUE(board) << why;
  return board.value_or(Board::start());
}

struct Case {
  const char* fen;
  const char* uci;
  const char* san;
};

TEST(San, IsWrittenAsPgnWritesIt) {
  const Case cases[] = {
      {"rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1", "e2e4", "e4"},
      {"rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1", "g1f3", "Nf3"},
      // One of two knights needs its file, one of two rooks on a file its rank, one of three queens both.
      {"4k3/8/8/8/8/5N2/8/1N2K3 w - - 0 1", "b1d2", "Nbd2"},
      {"4k3/8/8/8/8/5N2/8/1N2K3 w - - 0 1", "f3d2", "Nfd2"},
      {"4k3/8/8/R7/8/8/8/R3K3 w - - 0 1", "a1a3", "R1a3"},
      {"4k3/8/8/R7/8/8/8/R3K3 w - - 0 1", "a5a3", "R5a3"},
      {"8/k7/8/8/4Q2Q/8/K7/7Q w - - 0 1", "h4e1", "Qh4e1"},
      {"8/k7/8/8/4Q2Q/8/K7/7Q w - - 0 1", "e4e1", "Qee1"},
      {"8/k7/8/8/4Q2Q/8/K7/7Q w - - 0 1", "h1e1", "Q1e1"},
      // A pinned knight is no rival.
      {"4k3/8/8/8/1b6/2N5/8/4K1N1 w - - 0 1", "g1e2", "Ne2"},
      // Pawns name their file when they capture.
      {"4k3/8/8/3p4/4P3/8/8/4K3 w - - 0 1", "e4d5", "exd5"},
      {"4k3/8/8/8/3pP3/8/8/4K3 b - e3 0 1", "d4e3", "dxe3"},
      {"8/4P2k/8/8/8/8/8/4K3 w - - 0 1", "e7e8q", "e8=Q"},
      {"8/4P2k/8/8/8/8/8/4K3 w - - 0 1", "e7e8n", "e8=N"},
      {"3r4/4P2k/8/8/8/8/8/4K3 w - - 0 1", "e7d8r", "exd8=R"},
      {"4k3/8/8/8/8/8/8/4K2R w K - 0 1", "e1g1", "O-O"},
      {"r3k3/8/8/8/8/8/8/4K3 b q - 0 1", "e8c8", "O-O-O"},
      // Checks: of the piece, of the rook that castles, discovered, by promotion, and mate.
      {"4k3/8/8/8/8/8/8/4K2R w K - 0 1", "h1h8", "Rh8+"},
      {"3k4/8/8/8/8/8/8/R3K3 w Q - 0 1", "e1c1", "O-O-O+"},
      {"4k3/8/8/8/8/8/4N3/K3R3 w - - 0 1", "e2c3", "Nc3+"},
      {"7k/4P3/8/8/8/8/8/4K3 w - - 0 1", "e7e8q", "e8=Q+"},
      {"rnbqkbnr/pppp1ppp/8/4p3/6P1/5P2/PPPPP2P/RNBQKBNR b KQkq - 0 2", "d8h4", "Qh4#"},
      {"7k/8/6K1/8/8/8/8/R7 w - - 0 1", "a1a8", "Ra8#"}};
  for (const auto& [fen, expected_uci, expected_san] : cases) {
    const auto board = board_of(fen);
    const auto move = of_uci(board, expected_uci);
    ASSERT_TRUE(move) << fen << " " << expected_uci;
    EXPECT_EQ(san(board, *move), expected_san) << fen;
    EXPECT_EQ(uci(*move), expected_uci) << fen;
    EXPECT_EQ(of_san(board, expected_san), move) << fen << " " << expected_san;
  }
}

TEST(San, EveryLegalMoveOfManyPositionsHasOneOfItsOwn) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    auto board = Board::start();
    for (const auto played : play(seed).moves) {
      std::set<std::string> seen;
      for (const auto move : board.legal_moves()) {
        const auto text = san(board, move);
        EXPECT_TRUE(seen.insert(text).second) << text << " is written twice at " << board.fen();
        EXPECT_EQ(of_san(board, text), move) << text << " at " << board.fen();
        EXPECT_EQ(of_uci(board, uci(move)), move) << uci(move) << " at " << board.fen();
      }
      board = board.after(played);
    }
  }
}

TEST(San, MarksOfCheckMayBeMissing) {
  EXPECT_TRUE(of_san(board_of("4k3/8/8/8/8/8/8/4K2R w K - 0 1"), "Rh8"));
  EXPECT_TRUE(of_san(board_of("7k/8/6K1/8/8/8/8/R7 w - - 0 1"), "Ra8"));
}

TEST(San, AWrongOneIsRefusedWithPlaceValueAndRemedy) {
  const auto* start = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1";
  const auto* two_knights = "4k3/8/8/8/8/5N2/8/1N2K3 w - - 0 1";
  const auto* castling = "4k3/8/8/8/8/8/8/4K2R w K - 0 1";
  const auto* mate = "7k/8/6K1/8/8/8/8/R7 w - - 0 1";
  const std::tuple<const char*, const char*, const char*> cases[] = {
      {start, "Bf3",
       "\"Bf3\" is not a legal move of White in algebraic notation at FEN \"rnbqkbnr/pppppppp/8/8/8/8/"
       "PPPPPPPP/RNBQKBNR w KQkq - 0 1\"; legal moves to f3 are Nf3, f3"},
      {start, "", "\"\" is not a legal move of White"},
      {start, "e5", "legal moves are Nc3, Na3, Nh3, Nf3, a3, a4 and 14 more"},
      {start, "+", "\"+\" is not a legal move"},
      {start, "e4 ", "\"e4 \" is not a legal move"},
      {start, "E4", "\"E4\" is not a legal move"},
      {start, "Pe4", "legal moves to e4 are e4"},
      {start, "e2e4", "legal moves to e4 are e4"},
      {start, "e4++", "\"e4++\" is not a legal move"},
      {start, "e4+", "\"e4+\" does not give check at FEN"},
      {start, "e4+", "; write e4"},
      {start, "Ng1f3", "legal moves to f3 are Nf3, f3"},
      {start, "--", "\"--\" is not a legal move"},
      {start, "O-O", "\"O-O\" is not a legal move"},
      {start, "Nf3\x1b[2J", "\"Nf3?[2J\" is not a legal move"},
      {two_knights, "Nd2", "legal moves to d2 are Nbd2, Kd2, Nfd2"},
      {castling, "0-0", "legal moves are O-O"},
      {castling, "Rh8#", "\"Rh8#\" gives check, not checkmate at FEN"},
      {castling, "Rxh8", "legal moves to h8 are Rh8+"},
      {mate, "Ra8+", "\"Ra8+\" gives checkmate at FEN \"7k/8/6K1/8/8/8/8/R7 w - - 0 1\"; write Ra8#"},
      {"8/4P2k/8/8/8/8/8/4K3 w - - 0 1", "e8", "legal moves to e8 are e8=Q, e8=R, e8=B, e8=N"},
      {"8/4P2k/8/8/8/8/8/4K3 w - - 0 1", "e8=K", "legal moves to e8 are e8=Q, e8=R, e8=B, e8=N"},
      {"R6k/8/6K1/8/8/8/8/8 b - - 0 1", "Kh7", "the game has ended there: remove this move"}};
  for (const auto& [fen, text, message] : cases) {
    std::string why;
    EXPECT_FALSE(of_san(board_of(fen), text, &why)) << text;
    EXPECT_NE(why.find(message), std::string::npos) << text << "\n" << why;
    EXPECT_FALSE(of_san(board_of(fen), text)) << "and without a place for the message";
  }
}

TEST(San, AMegabyteOfOneIsRefusedByAShortMessage) {
  std::string why;
  EXPECT_FALSE(of_san(Board::start(), std::string(1 << 20, 'N'), &why));
  EXPECT_LT(why.size(), 300);
}

TEST(Uci, AWrongOneIsRefusedWithPlaceValueAndRemedy) {
  std::string why;
  for (const char* text : {"", "e2", "e2e5", "e7e5", "0000", "e2e4q", "E2E4", "e2-e4", "e4", "O-O", "i9i9"}) {
    EXPECT_FALSE(of_uci(Board::start(), text, &why)) << text;
    EXPECT_EQ(why.find("\"" + std::string(text) + "\" is not a legal move of White in UCI notation at FEN \"rnbqkbnr/"),
              0)
        << why;
  }
  EXPECT_FALSE(of_uci(board_of("8/4P2k/8/8/8/8/8/4K3 w - - 0 1"), "e7e8", &why));
  EXPECT_NE(why.find("; legal moves to e8 are e7e8q, e7e8r, e7e8b, e7e8n"), std::string::npos) << why;
}

}  // namespace
}  // namespace data::chess
