// Goal: the properties that a series' name alone implies. Programs of any kind choose these names.
#include "spec/series.h"

#include <gtest/gtest.h>

namespace spec {
namespace {

TEST(Series, OneQuantityIsMeasuredOnSeveralSplits) {
  for (const char* name :
       {"loss", "train/loss", "training_loss", "validation/loss", "eval_loss", "val_loss", "test/loss"}) {
    EXPECT_EQ(quantity_of(name), "loss") << name;
  }
  EXPECT_EQ(quantity_of("validation/top5/accuracy"), "top5/accuracy");
  EXPECT_EQ(quantity_of("value/loss"), "value/loss") << "no split, but a part of the model";
  EXPECT_EQ(quantity_of("testing"), "testing");
  EXPECT_EQ(quantity_of("test/"), "test/");
  EXPECT_EQ(quantity_of("val"), "val");
}

TEST(Series, ThatAreNotTrainedOnAreKnownByTheirSplit) {
  for (const char* name : {"validation/loss", "eval_accuracy", "test/bleu", "dev/f1"})
    EXPECT_TRUE(is_held_out(name)) << name;
  for (const char* name : {"loss", "train/loss", "evaluate", "testing/loss", "value/loss"}) {
    EXPECT_FALSE(is_held_out(name)) << name;
  }
}

TEST(Series, ThatNobodyDeclaredAreJudgedByTheWordsOfTheirQuantity) {
  for (const char* name : {"loss", "eval/perplexity", "value_loss", "head/loss", "wer"}) {
    EXPECT_EQ(undeclared_series(name).better, Better::kLower) << name;
  }
  for (const char* name : {"accuracy", "eval_accuracy", "top5_accuracy", "rouge1", "rouge_l", "reward/mean", "f1"}) {
    EXPECT_EQ(undeclared_series(name).better, Better::kHigher) << name;
  }
  for (const char* name : {"lossless", "entropy", "learning_rate", "accelerations"}) {
    EXPECT_EQ(undeclared_series(name).better, Better::kNeither) << name;
  }
  EXPECT_EQ(undeclared_series("x").over_ranks, OverRanks::kMean);
}

TEST(Series, NamesAreWordsForFilesUrlsAndCommandLines) {
  for (const char* name : {"loss", "validation/loss", "top-5@1", "layer.0/grad:norm", "50%"}) {
    EXPECT_TRUE(is_series_name(name)) << name;
  }
  for (const char* name : {"", "/loss", "loss/", "two words", "a,b", "quote\"", "line\n", "\xc3\xa4"}) {
    EXPECT_FALSE(is_series_name(name)) << name;
  }
  EXPECT_TRUE(is_series_name(std::string(kLongestSeries, 'a')));
  EXPECT_FALSE(is_series_name(std::string(kLongestSeries + 1, 'a')));
}

TEST(Series, WordsAreReadBack) {
  for (const auto better : {Better::kNeither, Better::kLower, Better::kHigher}) {
    EXPECT_EQ(better_of(to_string(better)), better);
  }
  for (const auto rule : {OverRanks::kMean, OverRanks::kSum, OverRanks::kMax, OverRanks::kRank0}) {
    EXPECT_EQ(over_ranks_of(to_string(rule)), rule);
  }
  EXPECT_EQ(better_of("bigger"), Better::kNeither);
  EXPECT_EQ(over_ranks_of(""), OverRanks::kMean);
}

}  // namespace
}  // namespace spec
