// Goal: T5 reads padded rows and cached tokens as it reads rows alone, and its bias is what the paper says. Method: a
// small model in fp32. What it computes is compared with transformers by families_peers_test.cpp.
#include "worker/models/t5/t5_model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/engine/dry_run.h"
#include "tests/worker/small_llama.h"
#include "tests/worker/small_t5.h"
#include "worker/models/head_loss.h"

namespace worker {
namespace {

using testing::drawn_t5;
using ::testing::HasSubstr;
using testing::parameters_of;
using testing::small_ids;
using testing::small_t5;

/// Texts of 7, 4 and 0 tokens in rows of 7, filled up on one side.
struct T5Padded {
  explicit T5Padded(bool left) {
    mask = at::zeros({3, 7}, at::kBool);
    mask[0].fill_(true);
    mask[1].narrow(0, left ? 3 : 0, 4).fill_(true);
    ids = small_ids(3, 7).masked_fill(mask.logical_not(), 0);
  }
  at::Tensor ids, mask;
};

bool t5_close(const at::Tensor& one, const at::Tensor& other) {
  return at::allclose(one, other, 1e-4, 1e-5);
}

TEST(T5, CarriesHuggingFacesNamesAndShapes) {
  const auto p = parameters_of(*drawn_t5(small_t5()));
  EXPECT_EQ(p.size(), 2u * 8 + 3 * 13 + 2 + 2 + 1);
  EXPECT_EQ(p.at("shared.weight").sizes(), (at::IntArrayRef{40, 16}));
  EXPECT_EQ(p.at("encoder.block.1.layer.0.SelfAttention.q.weight").sizes(), (at::IntArrayRef{12, 16}));
  EXPECT_EQ(p.at("encoder.block.1.layer.0.SelfAttention.o.weight").sizes(), (at::IntArrayRef{16, 12}));
  EXPECT_EQ(p.at("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight").sizes(),
            (at::IntArrayRef{8, 2}));
  EXPECT_EQ(p.at("encoder.block.0.layer.0.layer_norm.weight").sizes(), (at::IntArrayRef{16}));
  EXPECT_EQ(p.at("encoder.block.0.layer.1.DenseReluDense.wi.weight").sizes(), (at::IntArrayRef{24, 16}));
  EXPECT_EQ(p.at("encoder.final_layer_norm.weight").sizes(), (at::IntArrayRef{16}));
  EXPECT_EQ(p.at("decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight").sizes(),
            (at::IntArrayRef{8, 2}));
  EXPECT_EQ(p.at("decoder.block.2.layer.1.EncDecAttention.k.weight").sizes(), (at::IntArrayRef{12, 16}));
  EXPECT_EQ(p.at("decoder.block.2.layer.1.layer_norm.weight").sizes(), (at::IntArrayRef{16}));
  EXPECT_EQ(p.at("decoder.block.2.layer.2.DenseReluDense.wo.weight").sizes(), (at::IntArrayRef{16, 24}));
  EXPECT_EQ(p.count("encoder.block.1.layer.0.SelfAttention.relative_attention_bias.weight"), 0u);
  const auto gated = parameters_of(*drawn_t5(small_t5("gated-gelu", /*tied=*/false)));
  EXPECT_EQ(gated.size(), p.size() + 5 + 1);
  EXPECT_EQ(gated.at("decoder.block.0.layer.2.DenseReluDense.wi_0.weight").sizes(), (at::IntArrayRef{24, 16}));
  EXPECT_EQ(gated.at("decoder.block.0.layer.2.DenseReluDense.wi_1.weight").sizes(), (at::IntArrayRef{24, 16}));
  EXPECT_EQ(gated.at("lm_head.weight").sizes(), (at::IntArrayRef{40, 16}));
}

TEST(T5, DrawsTheFirstValuesOfMeshTensorFlow) {
  auto c = small_t5("relu", /*tied=*/false);
  c.vocab_size = 300;
  c.d_model = 64;
  c.d_kv = 16;
  c.num_heads = 6;
  c.d_ff = 100;
  c.relative_attention_num_buckets = 400;  // for a sample that is large enough
  c.relative_attention_max_distance = 1000;
  c.initializer_factor = 0.5;
  const auto p = parameters_of(*drawn_t5(c));
  const std::string encoder = "encoder.block.0.layer.0.SelfAttention.", decoder = "decoder.block.0.layer.";
  for (const auto& [name, inverse_square] :
       std::vector<std::pair<std::string, double>>{{"shared.weight", 1},
                                                   {"lm_head.weight", 1},
                                                   {encoder + "q.weight", 64 * 16},
                                                   {encoder + "k.weight", 64},
                                                   {encoder + "v.weight", 64},
                                                   {encoder + "o.weight", 6 * 16},
                                                   {encoder + "relative_attention_bias.weight", 64},
                                                   {decoder + "1.EncDecAttention.q.weight", 64 * 16},
                                                   {decoder + "2.DenseReluDense.wi.weight", 64},
                                                   {decoder + "2.DenseReluDense.wo.weight", 100}}) {
    EXPECT_NEAR(p.at(name).std().item<double>() * std::sqrt(inverse_square), 0.5, 0.03) << name;
    EXPECT_NEAR(p.at(name).mean().item<double>() * std::sqrt(inverse_square), 0, 0.04) << name;
  }
  EXPECT_TRUE(at::equal(p.at("decoder.final_layer_norm.weight"), at::full({64}, 0.5)));
}

TEST(T5Bias, DistancesHaveTheBucketsOfThePaper) {
  const at::Tensor relative =
      at::tensor(std::vector<std::int64_t>{-200, -127, -70, -20, -17, -8, -7, -1, 0, 1, 7, 8, 17, 127, 200});
  const auto both = at::tensor(std::vector<std::int64_t>{15, 15, 14, 10, 10, 8, 7, 1, 0, 17, 23, 24, 26, 31, 31});
  EXPECT_TRUE(at::equal(t5_buckets(relative, /*bidirectional=*/true, 32, 128), both));
  const auto before = at::tensor(std::vector<std::int64_t>{31, 31, 27, 17, 16, 8, 7, 1, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_TRUE(at::equal(t5_buckets(relative, /*bidirectional=*/false, 32, 128), before));
}

TEST(T5Bias, EachPairHasTheValuesOfItsDistance) {
  const auto c = small_t5();
  for (const bool bidirectional : {true, false}) {
    for (const auto& [begin, queries, keys] : {std::array<std::int64_t, 3>{0, 9, 9}, {0, 1, 1}, {6, 1, 7}, {3, 4, 7}}) {
      T5RelativeBias bias(c, bidirectional);
      {
        const at::NoGradGuard no_grad;
        bias.weight.normal_();
      }
      const at::Tensor got = bias.forward(begin, queries, keys);
      ASSERT_EQ(got.sizes(), (at::IntArrayRef{1, 2, queries, keys}));
      at::Tensor counts = at::zeros({8, 2});
      for (std::int64_t i = 0; i < queries; ++i) {
        for (std::int64_t j = 0; j < keys; ++j) {
          const auto bucket =
              t5_buckets(at::full({}, j - begin - i, at::kLong), bidirectional, 8, 20).item<std::int64_t>();
          EXPECT_TRUE(at::equal(got[0].select(1, i).select(1, j), bias.weight[bucket])) << i << " " << j;
          counts[bucket] += 1;
        }
      }
      got.sum().backward();
      EXPECT_TRUE(at::equal(bias.weight.grad(), counts)) << "one for each pair";
    }
  }
}

TEST(T5, PaddedRowsAreAsIfEachWereAlone) {
  const auto model = drawn_t5(small_t5());
  const at::Tensor decoder_ids = small_ids(3, 5);
  for (const bool left : {false, true}) {
    const T5Padded rows(left);
    const at::Tensor logits = model->forward(rows.ids, rows.mask, decoder_ids);
    EXPECT_TRUE(logits.isfinite().all().item<bool>()) << "also of a text without tokens";
    EXPECT_TRUE(t5_close(logits[0], model->forward(rows.ids.narrow(0, 0, 1), {}, decoder_ids.narrow(0, 0, 1))[0]));
    const at::Tensor text = rows.ids.narrow(0, 1, 1).narrow(1, left ? 3 : 0, 4);
    EXPECT_TRUE(t5_close(logits[1], model->forward(text, {}, decoder_ids.narrow(0, 1, 1))[0])) << left;
    EXPECT_FALSE(t5_close(logits, model->forward(rows.ids, {}, decoder_ids))) << "the mask matters";
    EXPECT_TRUE(t5_close(logits, model->forward(rows.ids, rows.mask.to(at::kLong), decoder_ids))) << "as whole numbers";
  }
}

TEST(T5, LossIsTheSumOverTheTargetsThatCount) {
  for (const bool tied : {true, false}) {
    const auto model = drawn_t5(small_t5("gated-silu", tied));
    const T5Padded rows(false);
    at::Tensor targets = small_ids(3, 6);
    targets[1].narrow(0, 3, 3).fill_(data::order::kNoTarget);
    const at::Tensor read = model->decoder_inputs(targets);
    EXPECT_TRUE(at::equal(read.select(1, 0), at::zeros({3}, at::kLong))) << "the start token";
    EXPECT_TRUE(at::equal(read[0].narrow(0, 1, 5), targets[0].narrow(0, 0, 5)));
    EXPECT_TRUE(at::equal(read[1].narrow(0, 4, 2), at::zeros({2}, at::kLong))) << "padding for what does not count";
    const at::Tensor logits = model->forward(rows.ids, rows.mask, read);
    const at::Tensor want = at::cross_entropy_loss(logits.flatten(0, 1), targets.flatten(), {}, at::Reduction::Sum);
    EXPECT_TRUE(t5_close(model->loss(rows.ids, rows.mask, targets), want)) << tied;
  }
}

TEST(T5, NextIsTheLastRowOfForward) {
  const at::NoGradGuard no_grad;
  const auto model = drawn_t5(small_t5("gated-gelu", /*tied=*/false));
  const T5Padded rows(true);
  const at::Tensor text = small_ids(3, 10), encoded = model->encode(rows.ids, rows.mask);
  EXPECT_EQ(encoded.sizes(), (at::IntArrayRef{3, 7, 16}));
  T5Cache cache = model->cache(3, 10, at::kFloat, at::kCPU);
  std::int64_t read = 0;
  const void* keys = nullptr;
  for (const std::int64_t count : {1, 1, 4, 3, 1}) {
    const at::Tensor got = model->next(text.narrow(1, read, count), encoded, rows.mask, cache);
    read += count;
    EXPECT_EQ(got.sizes(), (at::IntArrayRef{3, 40}));
    EXPECT_TRUE(t5_close(got, model->forward(rows.ids, rows.mask, text.narrow(1, 0, read)).select(1, read - 1)))
        << read;
    EXPECT_EQ(cache.self[2].length, read);
    if (keys == nullptr) keys = cache.cross[2].keys.const_data_ptr();
    EXPECT_EQ(cache.cross[2].keys.const_data_ptr(), keys) << "computed once";
    EXPECT_EQ(cache.cross[2].length, 7);
  }
  EXPECT_THROW(model->next(text.narrow(1, 0, 1), encoded, rows.mask, cache), c10::Error) << "the cache is full";
}

TEST(T5, RefusesShapesThatDoNotFit) {
  const auto model = drawn_t5(small_t5());
  const at::Tensor ids = small_ids(2, 5), encoded = at::zeros({2, 5, 16});
  EXPECT_THROW(model->forward(ids, at::ones({2, 4}), ids), c10::Error) << "the mask is of another text";
  EXPECT_THROW(model->encode(ids[0], {}), c10::Error);
  EXPECT_THROW(model->loss(ids, {}, ids.narrow(1, 0, 0)), c10::Error) << "no target";
  T5Cache cache = model->cache(2, 8, at::kFloat, at::kCPU), short_cache = cache;
  EXPECT_THROW(model->next(ids, encoded, {}, cache), c10::Error) << "gradients are recorded";
  const at::NoGradGuard no_grad;
  EXPECT_THROW(model->next(ids, encoded.narrow(0, 0, 1), {}, cache), c10::Error) << "one row of two";
  short_cache.self.pop_back();
  EXPECT_THROW(model->next(ids, encoded, {}, short_cache), c10::Error) << "a block is missing";
  model->next(ids, encoded, {}, cache);
}

TEST(T5, EveryCallGoesThroughTheWrappers) {
  const auto model = drawn_t5(small_t5());
  int calls = 0;
  const CallWrapper counting = [&](Tensors inputs, const Forward& forward) {
    ++calls;
    return forward(std::move(inputs));
  };
  model->wrapper = counting;
  EXPECT_EQ(model->blocks().size(), 5u);
  for (const auto& block : model->blocks()) {
    block->wrapper = block->attention_wrapper = block->mlp_wrapper = counting;
  }
  const int of_encoder = 2 * 3, of_decoder = 3 * 4;  // a decoder block has two attentions
  model->loss(small_ids(1, 3), {}, small_ids(1, 3)).backward();
  EXPECT_EQ(calls, 1 + of_encoder + of_decoder);
  const at::NoGradGuard no_grad;
  calls = 0;
  const at::Tensor encoded = model->encode(small_ids(1, 3), {});
  EXPECT_EQ(calls, 1 + of_encoder);
  T5Cache cache = model->cache(1, 8, at::kFloat, at::kCPU);
  model->next(small_ids(1, 3), encoded, {}, cache);
  EXPECT_EQ(calls, 2 + of_encoder + of_decoder);
}

TEST(T5, DropoutIsOfTrainingAlone) {
  const at::NoGradGuard no_grad;
  auto config = small_t5();
  config.dropout_rate = 0.5;
  const auto with = drawn_t5(config), without = drawn_t5(small_t5());
  const at::Tensor x = small_ids(2, 8), plain = without->forward(x, {}, x);
  EXPECT_FALSE(at::allclose(with->forward(x, {}, x), plain, 1e-2, 1e-3));
  with->eval();
  EXPECT_TRUE(at::equal(with->forward(x, {}, x), plain));
}

TEST(T5, InfinitiesOfHalfNumbersBecomeLargeNumbers) {
  const at::NoGradGuard no_grad;
  const auto model = drawn_t5(small_t5());
  for (const auto& [name, value] : parameters_of(*model)) {
    if (name.ends_with("wo.weight")) value.fill_(1e4);
  }
  model->to(at::kHalf);
  const at::Tensor ids = small_ids(2, 5);
  EXPECT_TRUE(model->forward(ids, {}, ids).isfinite().all().item<bool>());
}

TEST(T5, TheLastProjectionMayStayInFp32) {
  const auto model = drawn_t5(small_t5());
  const at::Tensor ids = small_ids(2, 5), want = model->forward(ids, {}, ids);
  model->to(at::kBFloat16);
  for (const auto& module : model->named_modules()) {
    if (module.key().ends_with(".wo")) module.value()->to(at::kFloat);
  }
  const at::Tensor got = model->forward(ids, {}, ids);
  EXPECT_EQ(got.scalar_type(), at::kBFloat16);
  EXPECT_LT((got - want).norm().item<double>(), 0.05 * want.norm().item<double>());
}

TEST(T5, APlanKnowsEveryOperation) {
  const auto model = drawn_t5(small_t5("gated-gelu"));
  const T5Padded rows(false);
  const at::Tensor targets = small_ids(3, 6);
  const fsdp::DryRunGuard guard;
  model->loss(rows.ids, rows.mask, targets).backward();
  EXPECT_TRUE(parameters_of(*model).at("shared.weight").grad().defined());
}

TEST(T5, SizesThatDoNotFitAreErrors) {
  auto near = small_t5();
  near.relative_attention_max_distance = 4;
  auto strange = small_t5();
  strange.pad_token_id = 40;
  auto none = small_t5();
  none.num_decoder_layers = 0;
  auto few = small_t5();
  few.relative_attention_num_buckets = 3;
  for (const auto& [config, says] :
       {std::pair{near, "relative_attention_max_distance: want above half of relative_attention_num_buckets = 4"},
        {strange, "model.pad_token_id: want a token below model.vocab_size = 40"},
        {none, "model.num_decoder_layers = 0"},
        {few, "model.relative_attention_num_buckets = 3: want"}}) {
    try {
      T5ForConditionalGeneration{config};
      ADD_FAILURE() << says;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  }
}

}  // namespace
}  // namespace worker
