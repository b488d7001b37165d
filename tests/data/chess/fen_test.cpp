#include <gtest/gtest.h>

#include "data/chess/board.h"

namespace data::chess {
namespace {

TEST(Fens, AreReadAndPrintedAsTheyWere) {
  for (const char* fen : {"rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1",
                          "r3k2r/p1ppqpb1/bn2pnp1/3PN3/1p2P3/2N2Q1p/PPPBBPPP/R3K2R b Kq - 3 20",
                          "4k3/8/8/8/3pP3/8/8/4K3 b - e3 0 1", "8/8/8/8/8/8/1k6/7K w - - 9999 9999"}) {
    const auto board = Board::of_fen(fen);
    ASSERT_TRUE(board) << fen;
    EXPECT_EQ(board->fen(), fen);
  }
}

TEST(Fens, AnEnPassantSquareWithoutALegalCaptureIsDropped) {
  EXPECT_EQ(Board::of_fen("rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 1")->fen(),
            "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1");
  EXPECT_EQ(Board::of_fen("8/8/8/KPp4r/8/8/8/4k3 w - c6 0 1")->fen(), "8/8/8/KPp4r/8/8/8/4k3 w - - 0 1")
      << "the pawn on b5 is pinned once both pawns leave the rank";
}

TEST(Fens, AWrongOneIsRefusedWithFieldValueAndRemedy) {
  const std::pair<const char*, const char*> cases[] = {
      {"",
       "FEN \"\" has 1 fields; write 6 with one space between two: pieces, color to move, castling, en passant, "
       "halfmove clock, number of the move"},
      {"8/8/8/8/8/8/1k6/7K w - -", "FEN \"8/8/8/8/8/8/1k6/7K w - -\" has 4 fields; write 6"},
      {"8/8/8/8/8/8/1k6/7K  w - - 0 1", "has 7 fields"},
      {"8/8/8/8/8/8/1k6/7K w - - 0 1\n", "FEN, field 6 (number of the move): \"1?\"; write a whole number from 1"},
      {"8/8/8/8/8/1k6/7K w - - 0 1", "FEN, field 1 (pieces): \"8/8/8/8/8/1k6/7K\" has 7 ranks; write 8 with a slash"},
      {"8/8/8/4p5/8/8/1k6/7K w - - 0 1", "FEN, field 1 (pieces): rank 5: \"4p5\" has 10 squares; a rank has 8"},
      {"8/8/8/8/8/8/1k6/6K w - - 0 1", "rank 1: \"6K\" has 7 squares; a rank has 8"},
      {"8/8/8/44/8/8/1k6/7K w - - 0 1", "rank 5: \"44\" has two digits in a row; write their sum"},
      {"8/8/8/9/8/8/1k6/7K w - - 0 1",
       "rank 5: \"9\" contains \"9\"; use the pieces PNBRQKpnbrqk and the digits 1 to 8"},
      {"8/8/8/3\x01"
       "4/8/8/1k6/7K w - - 0 1",
       "rank 5: \"3?4\" contains \"?\"; use the pieces"},
      {"8/8/8/ppppppppp/8/8/1k6/7K w - - 0 1", "rank 5: \"ppppppppp\" has 9 squares"},
      {"p7/8/8/8/8/8/1k6/7K w - - 0 1", "a pawn stands on a8; pawns stand on ranks 2 to 7"},
      {"8/8/8/8/8/8/1k6/6PK w - - 0 1", "a pawn stands on g1; pawns stand on ranks 2 to 7"},
      {"8/8/8/8/8/8/1k6/8 w - - 0 1", "White has 0 kings; give each color exactly one"},
      {"8/8/8/8/8/8/1k1k4/7K w - - 0 1", "Black has 2 kings; give each color exactly one"},
      {"8/8/8/8/P7/PPPPPPPP/1k6/7K b - - 0 1", "White has 9 pawns; give each color at most 8"},
      {"k7/nnnnnnnn/nnnnnnnn/8/8/8/8/7K w - - 0 1", "Black has 17 pieces; give each color at most 16"},
      {"8/8/8/8/8/8/1k6/7K x - - 0 1", "FEN, field 2 (color to move): \"x\"; write w or b"},
      {"8/8/8/8/8/8/8/k6R w - - 0 1", "White has 0 kings"},
      {"k6R/8/8/8/8/8/8/7K w - - 0 1",
       "FEN, field 2 (color to move): \"w\", but Black's king is in check already; let Black move"},
      {"4k3/8/8/8/8/8/8/4K2R w QK - 0 1", "FEN, field 3 (castling): \"QK\" has Q, but no White king on e1"},
      {"r3k2r/8/8/8/8/8/8/R3K2R w kK - 0 1",
       "FEN, field 3 (castling): \"kK\"; write letters of KQkq in this order, or -"},
      {"r3k2r/8/8/8/8/8/8/R3K2R w KK - 0 1", "\"KK\"; write letters of KQkq in this order, or -"},
      {"r3k2r/8/8/8/8/8/8/R3K2R w A - 0 1", "\"A\"; write letters of KQkq in this order, or -"},
      {"r3k2r/8/8/8/8/8/8/R3K2R w  - 0 1", "FEN, field 3 (castling): is empty; write letters of KQkq, or -"},
      {"4k3/8/8/8/8/8/8/4K2R w KQ - 0 1", "\"KQ\" has Q, but no White king on e1 with a rook on a1; leave out Q"},
      {"3k3r/8/8/8/8/8/8/4K3 w k - 0 1", "\"k\" has k, but no Black king on e8 with a rook on h8; leave out k"},
      {"4k3/8/8/8/3pP3/8/8/4K3 b - e9 0 1", "FEN, field 4 (en passant): \"e9\" is no square; write the square behind"},
      {"4k3/8/8/8/3pP3/8/8/4K3 b - e6 0 1", "\"e6\" is not on rank 3, though Black is to move; write the square"},
      {"4k3/8/8/8/3pP3/8/8/4K3 b - d3 0 1", "\"d3\": no pawn can have moved from d2 to d4; write the square behind"},
      {"4k3/8/8/8/3pP3/8/4N3/4K3 b - e3 0 1", "\"e3\": no pawn can have moved from e2 to e4"},
      {"8/8/8/8/8/8/1k6/7K w - - -1 1", "FEN, field 5 (halfmove clock): \"-1\"; write a whole number from 0 to 9999"},
      {"8/8/8/8/8/8/1k6/7K w - - 00 1", "\"00\"; write a whole number"},
      {"8/8/8/8/8/8/1k6/7K w - - 99999999999999999999 1", "\"99999999999999999999\"; write a whole number from 0"},
      {"8/8/8/8/8/8/1k6/7K w - - 0 0", "FEN, field 6 (number of the move): \"0\"; write a whole number from 1 to 9999"},
      {"8/8/8/8/8/8/1k6/7K w - - 0 10000", "\"10000\"; write a whole number from 1 to 9999"}};
  for (const auto& [fen, message] : cases) {
    std::string why;
    EXPECT_FALSE(Board::of_fen(fen, &why)) << fen;
    EXPECT_NE(why.find(message), std::string::npos) << fen << "\n" << why;
    EXPECT_FALSE(Board::of_fen(fen)) << "and without a place for the message";
  }
}

TEST(Fens, AMegabyteOfOneIsRefusedByAShortMessage) {
  std::string why;
  EXPECT_FALSE(Board::of_fen(std::string(1 << 20, '/'), &why));
  EXPECT_EQ(why, "FEN \"" + std::string(40, '/') + "...\" has 1048576 bytes; no FEN has more than 128");
}

}  // namespace
}  // namespace data::chess
