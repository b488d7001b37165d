// The rows of classifiers, of masked language modelling and of BERT: what they refuse, and what they mean.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "spec/recipes.h"
#include "spec/tables/bert_keys.h"
#include "spec/tables/gpt_neox_keys.h"
#include "spec/tables/llama_keys.h"
#include "spec/tables/text_recipe_keys.h"

namespace spec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Optional;

TEST(Classify, WeightsAreWordsOrANumberForEachClass) {
  const Table* table = &classify();
  const auto refused = [&](const std::string& weights) {
    Values values;
    if (!weights.empty()) values.set("train.class_weights", weights);
    fill_defaults(values, {&table, 1}, 2);
    const auto conflicts = conflicts_of(values, {&table, 1}, 2);
    return conflicts.empty() ? "" : conflicts[0].key + ": " + conflicts[0].want;
  };
  for (const auto* good : {"", "none", "balanced", "1 2.5", " 0  1e-3 4 "}) EXPECT_EQ(refused(good), "") << good;
  for (const auto* bad : {"Balanced", "1", "1 -2", "0 0", "1 nan", "1 inf", "1, 2", "1 2x", " "}) {
    EXPECT_THAT(refused(bad), HasSubstr("train.class_weights: want none, balanced, or a number")) << bad;
  }
  EXPECT_THAT(class_weight_numbers("1 2.5 0"), Optional(ElementsAre(1, 2.5, 0)));
  EXPECT_EQ(class_weight_numbers("balanced"), std::nullopt);
}

TEST(Classify, WeightsFitTheClassesOfTheData) {
  EXPECT_EQ(conflict_with_classes({.class_weights = "1 2 3"}, 3), std::nullopt);
  EXPECT_EQ(conflict_with_classes({.class_weights = "balanced"}, 3), std::nullopt);
  const auto conflict = conflict_with_classes({.class_weights = "1 2 3"}, 4);
  ASSERT_TRUE(conflict);
  EXPECT_EQ(conflict->key, "train.class_weights");
  EXPECT_EQ(conflict->want, "has 3 numbers, and the data have 4 classes");
}

TEST(Classify, ItsRowsReachTheirMembers) {
  EXPECT_FALSE(standard<Classify>(classify()).freeze_encoder);
  EXPECT_EQ(standard<Classify>(classify()).class_weights, "none");
  EXPECT_EQ(standard<MaskedLm>(masked_lm()).mask_share, 0.15);
  Values values;
  values.set("train.freeze_encoder", true);
  EXPECT_TRUE(bind<Classify>(classify(), values).freeze_encoder);
}

TEST(MaskedLm, PredictsSomeTokensAndNotAll) {
  const Key& share = masked_lm().keys.front();
  for (const double good : {0.01, 0.15, 0.9}) EXPECT_TRUE(allowed(share, Value(good))) << good;
  for (const double bad : {0.0, -0.1, 1.0}) EXPECT_FALSE(allowed(share, Value(bad))) << bad;
}

TEST(Bert, DerivesPositionsAndTheClassifiersDropout) {
  const Table* table = &bert();
  Values values;
  values.set("model.hidden_dropout_prob", 0.3);
  values.set("data.sequence_length", std::int64_t{1024});
  fill_defaults(values, {&table, 1}, 1);
  EXPECT_EQ(values.real("model.classifier_dropout"), 0.3);
  EXPECT_EQ(values.whole("model.max_position_embeddings"), 1024);
  EXPECT_FALSE(values.has("model.vocab_size")) << "the data decide";
  values.set("model.hidden_size", std::int64_t{250});
  values.set("model.vocab_size", std::int64_t{300});
  values.set("model.pad_token_id", std::int64_t{300});
  const auto conflicts = conflicts_of(bind<Bert>(bert(), values));
  ASSERT_EQ(conflicts.size(), 2U);
  EXPECT_EQ(conflicts[0].want, "want a multiple of num_attention_heads = 4");
  EXPECT_EQ(conflicts[0].remedy, "try 248 or 252");
  EXPECT_EQ(conflicts[1].key, "model.pad_token_id");
}

TEST(Bert, RowsThatOtherFamiliesHaveAreTheirs) {
  int shared = 0;
  for (const auto* other : {&llama(), &gpt_neox()}) {
    for (const auto& key : bert().keys) {
      const Key* same = find_key({&other, 1}, key.name);
      if (same == nullptr) continue;
      ++shared;
      EXPECT_EQ(same->kind, key.kind) << key.name;
      EXPECT_EQ(same->low, key.low) << key.name;
      EXPECT_EQ(same->high, key.high) << key.name;
      EXPECT_EQ(same->above_low, key.above_low) << key.name;
      EXPECT_EQ(same->choices, key.choices) << key.name;
      EXPECT_EQ(same->unit, key.unit) << key.name;
    }
  }
  EXPECT_GT(shared, 15);
}

}  // namespace
}  // namespace spec
