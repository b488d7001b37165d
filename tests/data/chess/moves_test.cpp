#include "data/chess/board.h"

#include <gtest/gtest.h>

namespace data::chess {
namespace {

/// A position of https://www.chessprogramming.org/Perft_Results and its numbers of games of 1, 2, 3... plies.
struct Published {
  const char* fen;
  std::vector<std::uint64_t> games;
};

/// The number of games of exactly `depth` plies that begin at this position. Each depth has published numbers, which
/// show that a generator of legal moves is right.
std::uint64_t perft(const Board& board, int depth) {
  if (depth <= 0) return 1;
  const auto moves = board.legal_moves();
  if (depth == 1) return moves.size();
  std::uint64_t games = 0;
  for (const auto move : moves) games += perft(board.after(move), depth - 1);
  return games;
}

void expect_published(const Published& published) {
  const auto board = Board::of_fen(published.fen);
  ASSERT_TRUE(board) << published.fen;
  for (std::size_t at = 0; at < published.games.size(); ++at) {
    EXPECT_EQ(perft(*board, static_cast<int>(at) + 1), published.games[at]) << published.fen << ", depth " << at + 1;
  }
}

TEST(LegalMoves, AreCountedRightFromTheStart) {
  expect_published({"rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1", {20, 400, 8902, 197'281}});
  EXPECT_EQ(perft(Board::start(), 0), 1) << "one game of no plies";
}

TEST(LegalMoves, AreCountedRightWithCastlingPinsAndChecks) {
  expect_published({"r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R w KQkq - 0 1", {48, 2039, 97'862}});
}

TEST(LegalMoves, AreCountedRightWithEnPassantOfPinnedPawns) {
  expect_published({"8/2p5/3p4/KP5r/1R3p1k/8/4P1P1/8 w - - 0 1", {14, 191, 2812, 43'238}});
}

TEST(LegalMoves, AreCountedRightWithPromotionsOfBothColors) {
  expect_published({"r3k2r/Pppp1ppp/1b3nbN/nP6/BBP1P3/q4N2/Pp1P2PP/R2Q1RK1 w kq - 0 1", {6, 264, 9467, 422'333}});
  expect_published({"r2q1rk1/pP1p2pp/Q4n2/bbp1p3/Np6/1B3NBn/pPPP1PPP/R3K2R b KQ - 0 1", {6, 264, 9467, 422'333}});
}

TEST(LegalMoves, AreCountedRightWithPromotionsByCapture) {
  expect_published({"rnbq1k1r/pp1Pbppp/2p5/8/2B5/8/PPP1NnPP/RNBQK2R w KQ - 1 8", {44, 1486, 62'379, 2'103'487}});
}

TEST(LegalMoves, AreCountedRightInAMiddleGame) {
  expect_published(
      {"r4rk1/1pp1qppp/p1np1n2/2b1p1B1/2B1P1b1/P1NP1N2/1PP1QPPP/R4RK1 w - - 0 10", {46, 2079, 89'890, 3'894'594}});
}

TEST(Boards, LoseACastlingRightWithTheKingTheRookAndTheRooksCapture) {
  const auto board = *Board::of_fen("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1");
  const std::pair<Move, const char*> cases[] = {
      {{square_of("e1"), square_of("e2")}, "kq"},  {{square_of("a1"), square_of("a2")}, "Kkq"},
      {{square_of("h1"), square_of("h2")}, "Qkq"}, {{square_of("a1"), square_of("a8")}, "Kk"},
      {{square_of("h1"), square_of("h8")}, "Qq"},  {{square_of("e1"), square_of("g1")}, "kq"}};
  for (const auto& [move, rights] : cases) {
    EXPECT_NE(board.after(move).fen().find(" b " + std::string(rights) + " "), std::string::npos)
        << board.after(move).fen();
  }
}

TEST(Boards, CountQuietPliesAndMoves) {
  auto board = *Board::of_fen("4k3/8/8/3p4/4P3/2n5/8/4K3 w - - 7 30");
  board = board.after({square_of("e1"), square_of("f1")});
  EXPECT_EQ(board.quiet_plies(), 8);
  EXPECT_EQ(board.number(), 30);
  EXPECT_EQ(board.after({square_of("e8"), square_of("e7")}).number(), 31);
  EXPECT_EQ(board.after({square_of("c3"), square_of("e4")}).quiet_plies(), 0) << "after a capture";
  EXPECT_EQ(board.after({square_of("d5"), square_of("d4")}).quiet_plies(), 0) << "after a move of a pawn";
}

TEST(Boards, KeepAnEnPassantSquareOnlyWhereTheCaptureIsLegal) {
  const auto after_e4 = [](const char* fen) {
    return Board::of_fen(fen)->after({square_of("e2"), square_of("e4")}).fen();
  };
  EXPECT_EQ(after_e4("4k3/8/8/8/3p4/8/4P3/4K3 w - - 0 1"), "4k3/8/8/8/3pP3/8/8/4K3 b - e3 0 1");
  EXPECT_EQ(after_e4("4k3/8/8/8/8/8/4P3/4K3 w - - 0 1"), "4k3/8/8/8/4P3/8/8/4K3 b - - 0 1") << "no pawn is near";
  EXPECT_EQ(after_e4("8/8/8/8/k2p3R/8/4P3/4K3 w - - 0 1"), "8/8/8/8/k2pP2R/8/8/4K3 b - - 0 1")
      << "the capture would take both pawns from between rook and king";
}

}  // namespace
}  // namespace data::chess
