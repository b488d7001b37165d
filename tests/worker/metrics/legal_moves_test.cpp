#include "worker/metrics/legal_moves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "data/chess/notation.h"
#include "data/chess/player.h"

namespace worker {
namespace {

using data::chess::Notation;

LegalShare count(std::string_view prompt, std::string_view reply, std::int64_t moves = 1) {
  return count_legal_moves(prompt, reply, Notation::kSan, moves);
}

bool is_legal_next(std::string_view prompt, std::string_view reply, Notation notation) {
  return count_legal_moves(prompt, reply, notation).legal == 1;
}

TEST(LegalMoves, AReplyBeginsWithALegalMoveOrNot) {
  for (const char* reply : {"Nf3", " Nf3", "Nf3 Nc6", "Nf3\n", "2. Nf3", "2.Nf3", "Nf3 and nonsense"}) {
    EXPECT_TRUE(is_legal_next("1. e4 e5 ", reply, Notation::kSan)) << reply;
  }
  for (const char* reply :
       {"",     " ",      "\n", "Nf4",      "Nf",  "nf3", "e4",    "Bf3",  "Nf3+",  "Nf3#",     "Ngf3",
        "g1f3", "3. Nf3", "2.", "2... Nf3", "1-0", "*",   "Nf3\t", "Nf3!", "{Nf3}", "\xff\xfe", "O-O"}) {
    EXPECT_FALSE(is_legal_next("1. e4 e5 ", reply, Notation::kSan)) << reply;
  }
  EXPECT_FALSE(is_legal_next("1. e4 e5 ", std::string_view("Nf3\0", 4), Notation::kSan));
  EXPECT_TRUE(is_legal_next("1. e4 e5 2. ", "Nf3", Notation::kSan)) << "the number may be the prompt's";
  EXPECT_TRUE(is_legal_next("e2e4 e7e5 ", "g1f3", Notation::kUci));
  EXPECT_FALSE(is_legal_next("e2e4 e7e5 ", "Nf3", Notation::kUci));
}

// Mate in one: "#" may be missing, as players write, but "+" is wrong.
TEST(LegalMoves, SignsOfCheckMayBeMissingButNotWrong) {
  const char* prompt = "1. f3 e5 2. g4 ";
  EXPECT_TRUE(is_legal_next(prompt, "Qh4#", Notation::kSan));
  EXPECT_TRUE(is_legal_next(prompt, "Qh4", Notation::kSan));
  EXPECT_FALSE(is_legal_next(prompt, "Qh4+", Notation::kSan));
}

TEST(LegalMoves, CountUntilTheFirstThatIsNot) {
  EXPECT_EQ(count("1. e4 ", "e5 2. Nf3 Nc6", 3), (LegalShare{3, 3}));
  EXPECT_EQ(count("1. e4 ", "e5 2. Nf4 Nc6", 3), (LegalShare{1, 3})) << "after Nf4 the position is unknown";
  EXPECT_EQ(count("1. e4 ", "e5", 3), (LegalShare{1, 3})) << "a reply that ends too early lacks moves";
  EXPECT_EQ(count("1. e4 ", "e5 1-0 2. Nf3", 3), (LegalShare{1, 3})) << "nothing follows a result";
  EXPECT_EQ(count("1. e4 ", "e5 2. Nf3 nonsense", 2), (LegalShare{2, 2})) << "words after the last move are not read";
}

TEST(LegalMoves, NoMoveIsAskedForWhenTheGameIsOver) {
  EXPECT_EQ(count("1. f3 e5 2. g4 ", "Qh4# 0-1", 5), (LegalShare{1, 1}));
  EXPECT_EQ(count("1. f3 e5 2. g4 Qh4#", "3. Kf2"), (LegalShare{0, 0}));
  EXPECT_EQ(count("1. e4 e5 1/2-1/2", "2. Nf3"), (LegalShare{0, 0})) << "a result ends a game";
  EXPECT_EQ(count("1. e4 nonsense ", "e5"), (LegalShare{0, 0})) << "an illegal prompt has no position";
  EXPECT_EQ(count("", "e4", 0), (LegalShare{0, 0}));
}

TEST(LegalMoves, SharesOfRanksAreAdded) {
  LegalShare all = count("", "e4");
  all += count("", "e5");
  EXPECT_EQ(all, (LegalShare{1, 2}));
  EXPECT_EQ(all.share(), 0.5);
  EXPECT_EQ(LegalShare{}.share(), 0);
}

// Goal: the measure is 1 for a model that plays by the rules, wherever it goes on, and tells one wrong move.
// Method: games of the player are cut before each ply. Their own continuation is the reply, and so is that of the
// position one ply later, which has the wrong color to move.
TEST(LegalMoves, EveryMoveOfARealGameIsLegal) {
  LegalShare own, of_other_color;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto played = data::chess::play(seed);
    for (const auto notation : {Notation::kSan, Notation::kUci}) {
      const auto text = data::chess::movetext(data::chess::Board::start(), played.moves, notation);
      for (std::size_t ply = 0; ply + 1 < played.moves.size(); ply += 7) {
        const auto prompt = *data::chess::text_before(text, ply), later = *data::chess::text_before(text, ply + 1);
        const auto left = static_cast<std::int64_t>(played.moves.size() - ply);
        own += count_legal_moves(prompt, std::string_view(text).substr(prompt.size()), notation,
                                 std::min<std::int64_t>(8, left));
        const auto other = std::string_view(text).substr(later.size());
        if (notation == Notation::kUci) of_other_color += count_legal_moves(prompt, other, notation);
      }
    }
  }
  EXPECT_EQ(own.share(), 1);
  EXPECT_GT(own.asked, 2000);
  EXPECT_EQ(of_other_color.share(), 0) << "in UCI notation a move names its square, which the other color has";
}

TEST(LegalMoves, HostileTextsAreNotLegal) {
  const std::string long_word(1 << 20, 'N'), numbers = "1. " + std::string(1 << 20, '1') + ". e4";
  for (const auto& text : {long_word, numbers, std::string(1 << 16, '.'), std::string(300, '\0')}) {
    for (const auto notation : {Notation::kSan, Notation::kUci}) {
      EXPECT_EQ(count_legal_moves("", text, notation, 3), (LegalShare{0, 3}));
      EXPECT_EQ(count_legal_moves(text, "e4", notation, 3), (LegalShare{0, 0}));
    }
  }
}

}  // namespace
}  // namespace worker
