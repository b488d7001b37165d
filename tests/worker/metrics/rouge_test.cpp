#include "worker/metrics/rouge.h"

#include <gtest/gtest.h>

#include <string>

namespace worker {
namespace {

void expect_score(const Rouge& got, double precision, double recall, double f1) {
  EXPECT_DOUBLE_EQ(got.precision, precision);
  EXPECT_DOUBLE_EQ(got.recall, recall);
  EXPECT_DOUBLE_EQ(got.f1, f1);
}

TEST(Rouge, CountsSharedWordsAndPairs) {
  const auto scores = rouge("testing one two", "testing");
  expect_score(scores.one, 1, 1.0 / 3, 0.5);
  expect_score(scores.two, 0, 0, 0);
  const auto repeated = rouge("the cat the dog the cat", "the cat sat on the cat the");
  expect_score(repeated.one, 5.0 / 7, 5.0 / 6, 2 * (5.0 / 7) * (5.0 / 6) / (5.0 / 7 + 5.0 / 6));
  expect_score(repeated.two, 3.0 / 6, 3.0 / 5, 2 * 0.5 * 0.6 / 1.1);
}

TEST(Rouge, FindsTheLongestCommonSubsequence) {
  expect_score(rouge("testing one two", "testing two").l, 1, 2.0 / 3, 0.8);
  expect_score(rouge("a b c d", "d c b a").l, 0.25, 0.25, 0.25);
  expect_score(rouge("a b a c", "a a c b").l, 0.75, 0.75, 0.75);
}

// The example of rouge-score's own tests.
TEST(Rouge, OfSentencesTakesTheUnionOfTheirSubsequences) {
  const auto scores = rouge("w1 w2 w3 w4 w5", "w1 w2 w6 w7 w8\nw1 w3 w8 w9 w5");
  expect_score(scores.l_sum, 0.4, 0.8, 2 * 0.4 * 0.8 / (0.4 + 0.8));
  expect_score(rouge("a b\nc d", "c d\na b").l_sum, 1, 1, 1);
  expect_score(rouge("a b\nc d", "c d\na b").l, 0.5, 0.5, 0.5);
}

TEST(Rouge, OfSentencesCountsAWordAtMostAsOftenAsBothSidesHaveIt) {
  expect_score(rouge("a b\na c", "a").l_sum, 1, 0.25, 0.4);
  expect_score(rouge("a", "a b\na c").l_sum, 0.25, 1, 0.4);
}

// Here "b" and "c" are both longest. rouge-score goes back by the target first, so each line of the target gives the
// word that comes first in it. The other choice would give 2 of 3.
TEST(Rouge, OfSentencesChoosesAmongSubsequencesAsRougeScoreDoes) {
  expect_score(rouge("b c", "c b").l_sum, 0.5, 0.5, 0.5);
  expect_score(rouge("b c\nb", "c b").l_sum, 0.5, 1.0 / 3, 0.4);
}

TEST(Rouge, WordsAreLettersAndDigitsWithoutCase) {
  expect_score(rouge("Don't STOP-me, 42!", "don t stop me 42").two, 1, 1, 1);
  expect_score(rouge("a\tb\r\nc", "a b c").l_sum, 1, 1, 1);
  EXPECT_DOUBLE_EQ(rouge("caf\xc3\xa9", "caf").one.f1, 1) << "a letter beyond ASCII separates words";
}

// Python's lower() gives ASCII letters for these two alone.
TEST(Rouge, TwoCharactersBeyondAsciiHaveAsciiLettersInLowerCase) {
  EXPECT_DOUBLE_EQ(rouge("5 \xe2\x84\xaa"
                         "elvin",
                         "5 kelvin")
                       .one.f1,
                   1);
  EXPECT_DOUBLE_EQ(rouge("x\xc4\xb0stanbul", "xi stanbul").one.f1, 1);
}

TEST(Rouge, IsZeroWithoutAWordOnOneSide) {
  for (const auto& [target, prediction] : {std::pair{"", "a"}, {"a", ""}, {"", ""}, {"...", "\n\n"}, {"a", "\n"}}) {
    const auto scores = rouge(target, prediction);
    for (const auto& score : {scores.one, scores.two, scores.l, scores.l_sum}) expect_score(score, 0, 0, 0);
  }
}

TEST(Rouge, TakesAnyBytes) {
  std::string bytes;
  for (int i = 0; i < 4096; ++i) bytes += static_cast<char>(i * 37 + i / 256);
  EXPECT_DOUBLE_EQ(rouge(bytes, bytes).l.f1, 1);
  EXPECT_DOUBLE_EQ(rouge(bytes + "\xe2\x84", bytes + "\xc4").l_sum.f1, 1) << "a character that is cut off is no word";
}

}  // namespace
}  // namespace worker
