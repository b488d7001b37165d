#include "worker/metrics/classification.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <stdexcept>

namespace worker {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Truth 0: 3 right, 1 taken for 1. Truth 1: 1 right, 1 taken for 0. Truth 2: none. Class 3: one guess for it.
Confusion example() {
  const std::int64_t counts[] = {3, 1, 0, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0};
  return Confusion(4, counts);
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "";
}

TEST(Confusion, GivesTheScoresOfAClass) {
  const auto first = example().of_class(0);
  EXPECT_DOUBLE_EQ(first.precision, 3.0 / 4);
  EXPECT_DOUBLE_EQ(first.recall, 3.0 / 4);
  EXPECT_DOUBLE_EQ(first.f1, 3.0 / 4);
  const auto second = example().of_class(1);
  EXPECT_DOUBLE_EQ(second.precision, 1.0 / 2);
  EXPECT_DOUBLE_EQ(second.recall, 1.0 / 3);
  EXPECT_DOUBLE_EQ(second.f1, 0.4);
  EXPECT_EQ(second.samples, 3);
  EXPECT_EQ(second.guesses, 2);
}

TEST(Confusion, GivesAccuracyAndMacroF1) {
  EXPECT_DOUBLE_EQ(example().accuracy(), 4.0 / 7);
  EXPECT_DOUBLE_EQ(example().macro_f1(), (0.75 + 0.4 + 0) / 3) << "class 2 is absent, class 3 has only a wrong guess";
}

TEST(Confusion, IsZeroWithoutSamples) {
  const Confusion empty(3);
  EXPECT_EQ(empty.accuracy(), 0);
  EXPECT_EQ(empty.macro_f1(), 0);
  EXPECT_EQ(empty.of_class(1).f1, 0);
}

TEST(Confusion, OfAllRanksIsTheSumOfTheirs) {
  Confusion whole(3), first(3), second(3);
  for (int i = 0; i < 50; ++i) {
    const int truth = i % 3, guess = i * 7 / 5 % 3;
    whole.add(truth, guess);
    (i % 2 == 0 ? first : second).add(truth, guess);
  }
  first.add(second);
  EXPECT_TRUE(std::equal(first.counts().begin(), first.counts().end(), whole.counts().begin()));
  EXPECT_EQ(first.samples(), 50);
  EXPECT_EQ(Confusion(3, first.counts()).macro_f1(), whole.macro_f1());
}

TEST(Confusion, RefusesWhatIsNoClass) {
  Confusion table(3);
  EXPECT_THROW(table.add(3, 0), std::out_of_range);
  EXPECT_EQ(message_of([&] { table.add(0, -1); }), "confusion table: class -1; there are 3, numbered from 0");
  EXPECT_EQ(message_of([] { Confusion none(0); }), "confusion table: 0 classes; it can have 1 to 4096");
  EXPECT_EQ(message_of([] { Confusion many(4097); }), "confusion table: 4097 classes; it can have 1 to 4096");
  const std::int64_t counts[] = {1, 2, -3, 4};
  EXPECT_EQ(message_of([&] { Confusion(3, counts); }), "confusion table: 4 counts for 3 classes; there must be 9");
  EXPECT_EQ(message_of([&] { Confusion(2, counts); }), "confusion table: count 2 is -3; it must be at least 0");
  EXPECT_EQ(message_of([&] { table.add(Confusion(2)); }),
            "confusion table: one of 2 classes can't be added to one of 3");
}

TEST(Confusion, IsATableForPeople) {
  const std::string labels[] = {"games", "d\xc3\xa9mons", "lib\ns"};
  EXPECT_EQ(example().table(labels),
            "    #0  #1  #2  #3    samples  precision     recall         F1  class\n"
            "#0   3   1   0   0          4      0.750      0.750      0.750  games\n"
            "#1   1   1   0   1          3      0.500      0.333      0.400  d\xc3\xa9mons\n"
            "#2   0   0   0   0          0      0.000      0.000      0.000  lib?s\n"
            "#3   0   0   0   0          0      0.000      0.000      0.000\n"
            "accuracy 0.571, macro F1 0.383, 7 samples; rows: truth, columns: guess\n");
  Confusion large(12);
  for (int i = 0; i < 100000; ++i) large.add(11, 11);
  EXPECT_THAT(large.table({}), HasSubstr("\n#11       0       0")) << "columns are as wide as the largest count";
}

TEST(Confusion, OfManyClassesHasNoColumnsForThem) {
  EXPECT_THAT(Confusion(20).table({}), HasSubstr("#19    samples"));
  const auto table = Confusion(21).table({});
  EXPECT_EQ(table.find("   "), 0);
  EXPECT_THAT(table, HasSubstr("\n#20          0"));
}

}  // namespace
}  // namespace worker
