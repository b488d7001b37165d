// Goal: a T5 trains on pairs and on spans, goes on in the middle at another number of ranks, and computes in the
// numbers that its precision asks for: 16 bits, but fp32 in the last layer of a feed-forward block.
// Method: tiny models on folders that the test writes. The units of the recipe's own parts are looked at.
#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tests/worker/recipe_runs.h"
#include "worker/recipes/registry.h"
#include "worker/train/train_parts.h"

namespace worker::testing {
namespace {

using data::format::Kind;

TEST(Seq2Seq, LearnsPairsAndComparesItsAnswers) {
  const PreparedFolder data(Kind::kPairs, {{"train", pairs(120)}, {"validation", pairs(24)}}, of_bytes);
  const auto steps =
      whole_and_in_parts(
          [&](const TemporaryFolder& folder) {
            return run("seq2seq", kT5, data.path(), folder.path(), R"(,"steps":40,"generated_samples":6)",
                       R"(,"sequence_length":16,"target_length":8)");
          },
          15, 5e-4)
          .steps;
  EXPECT_LT(values(steps, "validation/loss").back(), 0.7 * values(steps, "validation/loss").front());
  ASSERT_EQ(values(steps, "validation/rouge1").size(), 4U);
  for (const double score : values(steps, "validation/rouge1")) {
    EXPECT_GE(score, 0);
    EXPECT_LE(score, 1);
  }
}

// Spans are drawn anew in each epoch. 60 texts are 5 steps, so the run stops in the middle of its third epoch.
TEST(Seq2Seq, LearnsToFillInSpansAndGoesOnWithTheSameSpans) {
  std::vector<Ids> documents;
  for (std::uint32_t i = 0; i < 60; ++i) documents.push_back(Ids(12 + i % 5, 40 + i % 20));
  const PreparedFolder data(Kind::kTokens, {{"train", texts(documents)}, {"validation", texts(documents)}},
                            [](data::format::Description& description) {
                              description.tokenizer_kind = "bytes";
                              description.vocabulary = 257;
                              description.eos = 256;
                            });
  const auto steps = whole_and_in_parts(
                         [&](const TemporaryFolder& folder) {
                           return run("seq2seq", kT5, data.path(), folder.path(), R"(,"steps":30,"objective":"spans")",
                                      R"(,"sequence_length":24,"target_length":16)");
                         },
                         13, 5e-4)
                         .steps;
  const auto held_out = values(steps, "validation/loss");
  EXPECT_LT(held_out.back(), 0.8 * held_out.front());
  EXPECT_TRUE(values(steps, "validation/rouge1").empty()) << "there are no answers to compare";
}

/// In what each parameter of the units computes.
std::map<std::string, at::ScalarType> dtypes_in(const RunConfig& config) {
  fsdp::DeviceMesh alone(nullptr, 0, 1, {});
  const auto recipe = make_recipe(config);
  recipe->open_data("", agent::rank::RankEnvironment());
  Parts parts(recipe->parts(), alone, config);
  std::map<std::string, at::ScalarType> out;
  for (const auto& unit : parts.trained().units()) {
    for (const auto& segment : unit->segments()) {
      for (const auto& parameter : segment->layout().parameters()) {
        EXPECT_TRUE(out.emplace(parameter.name, segment->key().param_dtype).second) << parameter.name;
      }
    }
  }
  return out;
}

TEST(Seq2SeqPrecision, KeepsTheLastLayerOfEachFeedForwardBlockInFp32) {
  const PreparedFolder data(Kind::kPairs, {{"train", pairs(24)}}, of_bytes);
  const TemporaryFolder folder;
  for (const auto& [precision, dtype] : {std::pair{"fp16", at::kHalf}, {"bf16", at::kBFloat16}}) {
    for (const bool fp32_norms : {false, true}) {
      SCOPED_TRACE(std::string(precision) + (fp32_norms ? " with fp32 norms" : ""));
      RunConfig config = run("seq2seq", kT5, data.path(), folder.path(),
                             R"(,"steps":2,"precision":")" + std::string(precision) + "\"");
      config.fsdp.fp32_norms = fp32_norms;
      int wide = 0, norms = 0;
      for (const auto& [name, is] : dtypes_in(config)) {
        const bool is_wo = name.ends_with(".DenseReluDense.wo.weight"), is_norm = name.ends_with("norm.weight");
        EXPECT_EQ(is, is_wo || (is_norm && fp32_norms) ? at::kFloat : dtype) << name;
        wide += is_wo;
        norms += is_norm;
      }
      EXPECT_EQ(wide, 4) << "two blocks of the encoder, two of the decoder";
      EXPECT_EQ(norms, 12) << "two in a block of the encoder, three in one of the decoder, and one after each stack";
    }
  }
}

TEST(Seq2SeqPrecision, LearnsInFp16AsInFp32) {
  const PreparedFolder data(Kind::kPairs, {{"train", pairs(120)}, {"validation", pairs(24)}}, of_bytes);
  const auto steps_in = [&](const std::string& precision) {
    const TemporaryFolder folder;
    std::vector<Listener> ranks(2);
    train(
        run("seq2seq", kT5, data.path(), folder.path(), R"(,"steps":20,"rouge":false,"precision":")" + precision + "\"",
            R"(,"sequence_length":16,"target_length":8)"),
        ranks);
    return ranks[0].steps;
  };
  const auto wide = steps_in("fp32"), half = steps_in("fp16");
  const auto wanted = values(wide, "validation/loss"), held_out = values(half, "validation/loss");
  ASSERT_EQ(held_out.size(), 2U);
  for (const double loss : values(half, "loss")) EXPECT_TRUE(std::isfinite(loss)) << loss;
  EXPECT_NEAR(values(half, "loss").front(), values(wide, "loss").front(), 0.01);
  EXPECT_NEAR(held_out.back(), wanted.back(), 0.05 * wanted.back());
  const auto scales = values(half, "loss_scale");
  ASSERT_EQ(scales.size(), 20U);
  EXPECT_EQ(scales.front(), 65536);
  const auto skipped = values(half, "skipped_steps");  // told from the first one on
  EXPECT_EQ(scales.back(), std::ldexp(65536, skipped.empty() ? 0 : -static_cast<int>(skipped.back())));
  EXPECT_TRUE(values(wide, "loss_scale").empty());
}

}  // namespace
}  // namespace worker::testing
