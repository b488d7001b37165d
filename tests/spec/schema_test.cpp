// Single rows of keys: kinds, ranges, defaults, and how a row sets its member.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "spec/recipes.h"
#include "spec/tables/bert_keys.h"
#include "spec/tables/checkpoint_keys.h"
#include "spec/tables/dinov2_keys.h"
#include "spec/tables/llama_keys.h"
#include "spec/tables/sharding_keys.h"
#include "spec/tables/t5_keys.h"
#include "spec/tables/training_keys.h"

namespace spec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<const Table*> all_tables() {
  auto tables = recipe_tables();
  tables.push_back(&checkpoints());
  return tables;
}

TEST(Tables, EveryRowIsWhole) {
  for (const auto* table : all_tables()) {
    for (const auto& key : table->keys) {
      EXPECT_NE(key.name.find('.'), std::string_view::npos) << key.name;
      EXPECT_FALSE(key.meaning.empty()) << key.name;
      EXPECT_NE(key.assign, nullptr) << key.name << " has no member";
      EXPECT_TRUE(key.standard.empty() || key.derived.empty()) << key.name << " has two defaults";
      if (key.standard.empty()) continue;
      const auto value = parse(key, key.standard);
      ASSERT_TRUE(value) << key.name;
      EXPECT_TRUE(allowed(key, *value)) << key.name;
    }
  }
}

TEST(Tables, EachTrainingHasEachNameOnce) {
  for (const auto& recipe : recipes()) {
    for (const auto* family : recipe.families) {
      std::set<std::string_view> names{recipe_key().name, family_key().name};
      auto tables = tables_of(recipe.kind, family->name);
      tables.push_back(&checkpoints());
      for (const auto* table : tables) {
        for (const auto& key : table->keys) {
          EXPECT_TRUE(names.insert(key.name).second) << key.name << " twice in " << recipe.kind << ", " << family->name;
        }
      }
    }
  }
}

// A job file is read before its recipe and family are known.
TEST(Tables, RowsOfOneNameHaveOneKindAndAreReadAsOne) {
  std::map<std::string_view, const Key*> first;
  for (const auto* table : all_tables()) {
    for (const auto& key : table->keys) {
      const auto& other = *first.emplace(key.name, &key).first->second;
      EXPECT_EQ(key.kind, other.kind) << key.name;
      EXPECT_EQ(key.unit, other.unit) << key.name;
    }
  }
  const auto keys = recipe_keys();
  EXPECT_EQ(std::ranges::count(keys, "model.hidden_size", &Key::name), 1);
  const auto range = std::ranges::find(keys, "model.initializer_range", &Key::name);
  ASSERT_NE(range, keys.end());
  EXPECT_EQ(range->standard, "0.02") << "as all families have it";
  const auto bias = std::ranges::find(keys, "model.attention_bias", &Key::name);
  ASSERT_NE(bias, keys.end());
  EXPECT_EQ(bias->standard, "") << "llama has false, gpt_neox true";
  EXPECT_EQ(bias->derived, "by model.family");
  const auto length = std::ranges::find(keys, "data.sequence_length", &Key::name);
  ASSERT_NE(length, keys.end());
  EXPECT_EQ(length->standard, "") << "causal_lm has 256, seq2seq 128";
  EXPECT_EQ(length->derived, "by train.recipe");
}

TEST(Tables, TheModelOfAFolderHasNoSizesBeforeItIsRead) {
  for (const auto& [recipe, family, heads] : {std::tuple{"causal_lm", "llama", "model.num_attention_heads"},
                                              {"causal_lm", "gpt_neox", "model.num_attention_heads"},
                                              {"seq2seq", "t5", "model.num_heads"},
                                              {"classify", "bert", "model.num_attention_heads"},
                                              {"dino", "dinov2", "model.num_attention_heads"}}) {
    SCOPED_TRACE(family);
    const auto tables = tables_of(recipe, family);
    Values values;
    values.set("data.prepared", std::string("data"));
    values.set("model.pretrained", std::string("/models/a"));
    values.set(heads, std::int64_t{65});  // the width, which nobody knows yet, may be no multiple of it
    fill_defaults(values, tables, 2);
    for (const auto& [name, value] : values) {
      const bool is_given = name == "model.pretrained" || name == heads;
      EXPECT_EQ(name.starts_with("model."), is_given) << name;
    }
    EXPECT_FALSE(values.has("data.global_crops_size")) << "it follows the model's images";
    EXPECT_EQ(values.whole("train.steps"), 1000);
    EXPECT_THAT(conflicts_of(values, tables, 2), IsEmpty());
  }
}

TEST(Tables, AWidthOfDinov2IsAWholeNumber) {
  for (const auto& [hidden, ratio, want, remedy] : {std::tuple{192, 4.0, "", ""},
                                                    {192, 2.5, "", ""},
                                                    {384, 2.6666666666666665, "", ""},
                                                    {192, 2.67, "192 x 2.67 = 512.64", "try 2 or 3"},
                                                    {33, 0.5, "33 x 0.5 = 16.5", "try 1"},
                                                    {384, 3.999, "384 x 3.999 = 1535.616", "try 3 or 4"}}) {
    Values values;
    fill_defaults(values, tables_of("dino", "dinov2"), 1);
    values.set("model.hidden_size", std::int64_t{hidden});
    values.set("model.mlp_ratio", ratio);
    for (const bool swiglu : {false, true}) {
      values.set("model.use_swiglu_ffn", swiglu);
      const auto conflicts = conflicts_of(bind<Dinov2>(dinov2(), values));
      ASSERT_EQ(conflicts.size(), want[0] == 0 ? 0U : 1U) << ratio;
      if (conflicts.empty()) continue;
      EXPECT_EQ(conflicts[0].key, "model.mlp_ratio");
      EXPECT_EQ(conflicts[0].want, std::string("want hidden_size x mlp_ratio to be a whole number, not ") + want);
      EXPECT_EQ(conflicts[0].remedy, remedy);
    }
  }
}

TEST(Tables, StepsOfEpochsAreNotKnownBeforeTheData) {
  const auto tables = tables_of("causal_lm", "llama");
  Values values;
  values.set("train.epochs", 1.5);
  fill_defaults(values, tables, 2);
  EXPECT_FALSE(values.has("train.steps"));
  EXPECT_FALSE(values.has("train.warmup_steps"));
  EXPECT_THAT(conflicts_of(values, tables, 2), IsEmpty());
  values.set("train.steps", std::int64_t{10});
  const auto conflicts = conflicts_of(values, tables, 2);
  ASSERT_EQ(conflicts.size(), 1U);
  EXPECT_EQ(conflicts[0].key, "train.steps");
}

TEST(Tables, ValuesOfARowReachItsMemberAndNoOther) {
  Values values;
  values.set("train.steps", std::int64_t{7});
  values.set("train.learning_rate", 0.5);
  values.set("train.schedule", std::string("constant"));
  const auto train = bind<Training>(training(), values);
  EXPECT_EQ(train.steps, 7);
  EXPECT_EQ(train.learning_rate, 0.5);
  EXPECT_EQ(train.schedule, LearningRateSchedule::kConstant);
  EXPECT_EQ(train.batch_size, 0);
}

TEST(Tables, DerivedDefaultsFollowWhatIsGiven) {
  const auto tables = tables_of("causal_lm", "llama");
  Values values;
  values.set("train.batch_size", std::int64_t{12});
  values.set("data.sequence_length", std::int64_t{4096});
  fill_defaults(values, tables, 2);
  EXPECT_EQ(values.whole("train.micro_batch_size"), 6);
  EXPECT_EQ(values.whole("model.max_position_embeddings"), 4096);
  EXPECT_EQ(values.whole("model.num_key_value_heads"), 4);
  EXPECT_EQ(values.real("train.min_learning_rate"), 3e-5);
  EXPECT_EQ(values.whole("train.warmup_steps"), 100);
  EXPECT_FALSE(values.has("model.vocab_size")) << "the data decide";
  EXPECT_THAT(conflicts_of(values, tables, 2), IsEmpty());
  EXPECT_EQ(conflicts_of(values, tables, 5).at(0).key, "train.batch_size");
}

TEST(Tables, EachOptimizerHasItsOwnKeysAndDefaults) {
  const auto tables = tables_of("causal_lm", "llama");
  const auto filled = [&](const char* optimizer) {
    Values values;
    if (*optimizer != 0) values.set("train.optimizer", std::string(optimizer));
    fill_defaults(values, tables, 1);
    EXPECT_THAT(conflicts_of(values, tables, 1), IsEmpty()) << optimizer;
    return values;
  };
  const auto usual = filled("");
  EXPECT_EQ(usual.text("train.optimizer"), "adamw");
  EXPECT_EQ(usual.real("train.weight_decay"), 0.1);
  EXPECT_EQ(usual.real("train.final_weight_decay"), 0.1);
  EXPECT_EQ(usual.real("train.beta2"), 0.95);
  EXPECT_EQ(usual.text("train.moments"), "fp32");
  EXPECT_FALSE(usual.has("train.momentum"));
  EXPECT_EQ(filled("adam").real("train.beta2"), 0.999);
  EXPECT_EQ(filled("lion").real("train.beta2"), 0.99);
  EXPECT_FALSE(filled("lion").has("train.epsilon"));
  EXPECT_FALSE(filled("lion").has("train.moments"));
  EXPECT_EQ(filled("sgd").real("train.momentum"), 0.9);
  EXPECT_EQ(filled("sgd").real("train.weight_decay"), 0);
  EXPECT_FALSE(filled("sgd").has("train.beta1"));
  EXPECT_EQ(filled("adafactor").real("train.weight_decay"), 0);
  EXPECT_FALSE(filled("adafactor").has("train.epsilon"));
  EXPECT_EQ(filled("muon").real("train.momentum"), 0.95);
}

TEST(Tables, AStepScheduleHasThreeDropsUnlessItIsToldOtherwise) {
  Values values;
  values.set("train.schedule", std::string("step"));
  values.set("train.steps", std::int64_t{400});
  fill_defaults(values, tables_of("causal_lm", "llama"), 1);
  EXPECT_EQ(values.whole("train.step_size"), 120) << "a third of 400 - 40";
  EXPECT_EQ(values.real("train.gamma"), 0.1);
  EXPECT_EQ(values.real("train.min_learning_rate"), 0);
}

TEST(Tables, AValueWithoutARowInThemIsAConflict) {
  const auto tables = tables_of("causal_lm", "llama");
  Values values;
  fill_defaults(values, tables, 1);
  values.set("model.num_experts", std::int64_t{8});
  const auto conflicts = conflicts_of(values, tables, 1);
  ASSERT_EQ(conflicts.size(), 1U);
  EXPECT_EQ(conflicts[0].key, "model.num_experts");
  EXPECT_THAT(tables_of("causal_lm", "mamba"), IsEmpty());
  EXPECT_THAT(tables_of("diffusion", "llama"), IsEmpty());
}

TEST(Sharding, GroupsAreOfTheHybridStrategyAndDivideTheRanks) {
  const std::vector<const Table*> tables{&sharding()};
  Values values;
  values.set("fsdp.shard_ranks", std::int64_t{3});
  fill_defaults(values, tables, 8);
  auto conflicts = conflicts_of(values, tables, 8);
  ASSERT_EQ(conflicts.size(), 1U);
  EXPECT_EQ(conflicts[0].want, "want fsdp.strategy = \"hybrid_shard\" with it");
  values.set("fsdp.strategy", std::string("hybrid_shard"));
  conflicts = conflicts_of(values, tables, 8);
  ASSERT_EQ(conflicts.size(), 1U);
  EXPECT_EQ(conflicts[0].want, "want a divisor of the 8 ranks");
  EXPECT_THAT(conflicts_of(values, tables, 9), IsEmpty());
}

TEST(Sharding, KeepsGatheredWeightsAmongSomeOfTheRanksThatShareThem) {
  const std::vector<const Table*> tables{&sharding()};
  const auto refusal = [&](const std::string& strategy, std::int64_t neighbours, std::uint64_t ranks, bool reshard,
                           std::int64_t shard_ranks = 0) {
    Values values;
    values.set("fsdp.strategy", strategy);
    values.set("fsdp.reshard_to_ranks", neighbours);
    values.set("fsdp.reshard_after_forward", reshard);
    if (shard_ranks > 0) values.set("fsdp.shard_ranks", shard_ranks);
    fill_defaults(values, tables, ranks);
    const auto conflicts = conflicts_of(values, tables, ranks);
    return conflicts.empty() ? "" : conflicts[0].want;
  };
  EXPECT_EQ(refusal("full_shard", 2, 8, true), "");
  EXPECT_EQ(refusal("hybrid_shard", 2, 8, true, 4), "");
  EXPECT_EQ(refusal("hybrid_shard", 3, 8, true), "") << "the worker knows the ranks of a node";
  const std::string divisor = " ranks that weights are spread over, and not all of them";
  EXPECT_EQ(refusal("full_shard", 3, 8, true), "want a divisor of the 8" + divisor);
  EXPECT_EQ(refusal("full_shard", 8, 8, true), "want a divisor of the 8" + divisor);
  EXPECT_EQ(refusal("hybrid_shard", 4, 8, true, 4), "want a divisor of the 4" + divisor);
  EXPECT_EQ(refusal("full_shard", 2, 8, false), "want fsdp.reshard_after_forward = true with it");
  EXPECT_EQ(refusal("zero1", 2, 8, true), "want fsdp.strategy = \"full_shard\" or \"hybrid_shard\" with it");
}

TEST(Sharding, DepthsOfAPrefetchThatIsOffHaveNoEffect) {
  const std::vector<const Table*> tables{&sharding()};
  const auto refused = [&](bool prefetch, std::int64_t depth, std::int64_t backward) {
    Values values;
    values.set("fsdp.prefetch", prefetch);
    values.set("fsdp.prefetch_depth", depth);
    if (backward >= 0) values.set("fsdp.backward_prefetch_depth", backward);
    fill_defaults(values, tables, 8);
    std::string keys;
    for (const auto& conflict : conflicts_of(values, tables, 8)) keys += conflict.key + " ";
    return keys;
  };
  EXPECT_EQ(refused(true, 3, 2), "");
  EXPECT_EQ(refused(false, 1, -1), "");
  EXPECT_EQ(refused(false, 3, -1), "fsdp.prefetch_depth ");
  EXPECT_EQ(refused(false, 1, 2), "fsdp.backward_prefetch_depth ");
}

TEST(Sharding, WhatIsKeptOfRecomputedPartsNeedsSuchParts) {
  const auto refused = [&](const std::string& parts, const std::string& keeps, bool offload,
                           std::vector<const Table*> tables = {&sharding()}) {
    Values values;
    values.set("fsdp.activation_checkpointing", parts);
    values.set("fsdp.activation_checkpointing_keeps", keeps);
    values.set("fsdp.activation_offload", offload);
    fill_defaults(values, tables, 8);
    std::string keys;
    for (const auto& conflict : conflicts_of(values, tables, 8)) keys += conflict.key + " ";
    return keys;
  };
  const std::string keeps = "fsdp.activation_checkpointing_keeps ";
  EXPECT_EQ(refused("none", "none", false), "");
  EXPECT_EQ(refused("block", "both", true), "");
  EXPECT_EQ(refused("none", "linear", false), keeps);
  EXPECT_EQ(refused("none", "none", true), "fsdp.activation_offload ");
  EXPECT_EQ(refused("mlp", "linear", true), "");
  EXPECT_EQ(refused("mlp", "attention", false), keeps) << "that part has none";
  for (const Table* masked : {&bert(), &t5()}) {
    EXPECT_EQ(refused("block", "linear", false, {&sharding(), masked}), "");
    EXPECT_EQ(refused("block", "both", false, {&sharding(), masked}), keeps) << "attention with masks of its own";
  }
}

TEST(Sharding, SeparateReductionsAreOfAShardAndUnsetUnlessAskedFor) {
  const std::vector<const Table*> tables{&sharding()};
  Values values;
  fill_defaults(values, tables, 8);
  EXPECT_FALSE(values.has("fsdp.separate_reductions")) << "the engine decides";
  for (const bool wanted : {true, false}) {
    values.set("fsdp.separate_reductions", wanted);
    values.set("fsdp.strategy", std::string("full_shard"));
    EXPECT_THAT(conflicts_of(values, tables, 8), IsEmpty());
    values.set("fsdp.strategy", std::string("no_shard"));
    const auto conflicts = conflicts_of(values, tables, 8);
    ASSERT_EQ(conflicts.size(), 1U);
    EXPECT_EQ(conflicts[0].want, "want another fsdp.strategy than \"no_shard\" with it");
  }
}

TEST(BestCheckpoint, IsOfASeriesThatIsMeasuredOnHeldOutDataAndHasGoodValues) {
  const std::vector<Series> series{{.name = "loss", .better = Better::kLower},
                                   {.name = "validation/loss", .better = Better::kLower},
                                   {.name = "validation/tokens"},
                                   {.name = "eval/accuracy", .better = Better::kHigher}};
  const auto refusal = [&](const std::string& best) {
    Values values;
    values.set("checkpoint.best", best);
    values.set("train.validation_every_steps", std::int64_t{10});
    values.set("data.validation_fraction", 0.05);
    const auto conflicts = conflicts_of_best(series, values);
    return conflicts.empty() ? "" : conflicts[0].key + ": " + conflicts[0].want + "; " + conflicts[0].remedy;
  };
  for (const auto* good : {"", "validation/loss", "eval/accuracy"}) EXPECT_EQ(refusal(good), "") << good;
  EXPECT_THAT(refusal("perplexity"), HasSubstr("checkpoint.best: want a series that this recipe reports; try "
                                               "validation/loss or eval/accuracy"));
  EXPECT_THAT(refusal("loss"), HasSubstr("nearly every step would be saved as a new best; try validation/loss"));
  EXPECT_THAT(refusal("validation/tokens"), HasSubstr("this one has no better direction"));
  EXPECT_THAT(conflicts_of_best(series, {}), IsEmpty());
}

TEST(BestCheckpoint, IsWhatAnEarlyStopWatchesWhereNoLossIsMeasured) {
  const std::vector<Series> without{{.name = "loss", .better = Better::kLower},
                                    {.name = "validation/knn", .better = Better::kHigher}};
  Values values;
  values.set("train.early_stop", std::int64_t{3});
  values.set("train.validation_every_steps", std::int64_t{10});
  const auto conflicts = conflicts_of_best(without, values);
  ASSERT_EQ(conflicts.size(), 1U);
  EXPECT_EQ(conflicts[0].key, "train.early_stop");
  EXPECT_THAT(conflicts[0].want,
              HasSubstr("want checkpoint.best with it, because this recipe reports no validation/loss"));
  EXPECT_THAT(conflicts[0].remedy, HasSubstr("try validation/knn"));
  values.set("checkpoint.best", std::string("validation/knn"));
  EXPECT_THAT(conflicts_of_best(without, values), IsEmpty());
  for (const auto& recipe : recipes()) {
    const auto found = std::ranges::find(recipe.series, kHeldOutLoss, &Series::name);
    EXPECT_EQ(found == recipe.series.end(), recipe.kind == "dino") << recipe.kind;
  }
}

TEST(Keys, AWholeNumberIsARealOneAndNothingElseIsAnother) {
  const Key whole{.kind = Kind::kWhole}, real{.kind = Kind::kReal}, flag{.kind = Kind::kFlag}, text{};
  EXPECT_EQ(as_kind(real, Value(std::int64_t{2})), Value(2.0));
  EXPECT_EQ(as_kind(whole, Value(2.0)), std::nullopt);
  EXPECT_EQ(as_kind(flag, Value(std::int64_t{1})), std::nullopt);
  EXPECT_EQ(as_kind(text, Value(true)), std::nullopt);
  EXPECT_EQ(as_kind(text, Value(std::string("a"))), Value(std::string("a")));
}

TEST(Keys, AChoiceIsAWholeWordOfItsList) {
  EXPECT_EQ(choice_index("cosine linear constant", "linear"), 1U);
  for (const auto* word : {"", "lin", "cosine linear", " "}) {
    EXPECT_EQ(choice_index("cosine linear constant", word), std::nullopt) << word;
  }
}

// A default that stood in the struct alone was written into exports as 0.
TEST(Llama, RowsOfAScaledRopeHaveDefaultsWhereTheTypeReadsThem) {
  const Table* table = &llama();
  for (const auto& [type, factor, low, high, original] :
       {std::tuple{"default", 0.0, 0.0, 0.0, 0}, {"linear", 8.0, 0.0, 0.0, 0}, {"llama3", 8.0, 1.0, 4.0, 8192}}) {
    Values values;
    values.set("model.rope_type", std::string(type));
    fill_defaults(values, {&table, 1}, 1);
    EXPECT_EQ(values.real("model.rope_factor"), factor) << type;
    EXPECT_EQ(values.real("model.rope_low_freq_factor"), low) << type;
    EXPECT_EQ(values.real("model.rope_high_freq_factor"), high) << type;
    EXPECT_EQ(values.whole("model.rope_original_max_position_embeddings"), original) << type;
    EXPECT_THAT(conflicts_of(values, {&table, 1}, 1), IsEmpty()) << type;
  }
}

}  // namespace
}  // namespace spec
