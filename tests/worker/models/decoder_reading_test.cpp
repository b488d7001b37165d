// Goal: packed rows and cached tokens give what whole rows of one text give. Method: a small Llama in fp32, forwards
// and backwards.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/text/json.h"
#include "tests/worker/packed_rows.h"
#include "tests/worker/small_llama.h"
#include "worker/models/family.h"
#include "worker/models/head_loss.h"

namespace worker {
namespace {

using testing::packed_rows;
using testing::parameters_of;
using testing::small_ids;

/// A small decoder of a family, with values of a size that matters.
class DecoderReading : public ::testing::TestWithParam<const char*> {
 protected:
  static std::shared_ptr<CausalModel> decoder() {
    const Family& of = family(GetParam());
    const auto values = of.read(fsdp::Json::parse(R"({"vocab_size": 300, "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 32, "initializer_range": 0.2})"));
    auto model = of.make_causal(values);
    fsdp::initialize(*model, 1, [&](const std::string& name, const at::Tensor& into, at::Generator& random) {
      of.draw(values, name, into, random);
    });
    return model;
  }
};

/// Documents of these lengths one after another in a row of 12, padding at the end.
struct Packed {
  explicit Packed(const std::vector<std::int64_t>& lengths) {
    ids = at::zeros({1, 12}, at::kLong);
    positions = at::zeros({1, 12}, at::kLong);
    targets = at::full({1, 12}, data::order::kNoTarget, at::kLong);
    rows = packed_rows({lengths}, 12);
    std::int64_t begin = 0;
    for (const auto length : lengths) {
      const at::Tensor text = small_ids(1, length) + static_cast<std::int64_t>(documents.size());
      documents.push_back(text);
      ids.narrow(1, begin, length).copy_(text);
      positions.narrow(1, begin, length).copy_(at::arange(length).unsqueeze(0));
      targets.narrow(1, begin, length - 1).copy_(text.narrow(1, 1, length - 1));
      begin += length;
    }
  }

  at::Tensor ids, positions, targets;
  std::shared_ptr<const Documents> rows;
  std::vector<at::Tensor> documents;
};

/// The targets of a document alone.
at::Tensor next_tokens(const at::Tensor& text) {
  return at::cat({text.narrow(1, 1, text.size(1) - 1), at::full({1, 1}, data::order::kNoTarget, at::kLong)}, 1);
}

TEST_P(DecoderReading, PackedDocumentsAreAsIfEachWereAlone) {
  const Packed packed({5, 3, 2});
  // Distances alone count in RoPE, so rows without positions of their own give equal results.
  for (const bool with_positions : {true, false}) {
    const auto together = decoder(), apart = decoder();
    const Rows rows(packed.ids, packed.rows, with_positions ? packed.positions : at::Tensor());
    const at::Tensor logits = together->forward(rows);
    std::int64_t begin = 0;
    for (const auto& text : packed.documents) {
      EXPECT_TRUE(at::allclose(logits.narrow(1, begin, text.size(1)), apart->forward(text), 1e-4, 1e-5)) << begin;
      begin += text.size(1);
    }
    EXPECT_FALSE(at::allclose(logits, together->forward(packed.ids), 1e-2, 1e-2)) << "documents matter";
    EXPECT_TRUE(logits.isfinite().all().item<bool>()) << "padding, too";
    together->loss(rows, packed.targets).backward();
    for (const auto& text : packed.documents) apart->loss(text, next_tokens(text)).backward();
    const auto want = parameters_of(*apart);
    for (const auto& [name, value] : parameters_of(*together)) {
      EXPECT_TRUE(at::allclose(value.grad(), want.at(name).grad(), 1e-3, 1e-4)) << name;
    }
  }
}

TEST_P(DecoderReading, NextIsTheLastRowOfForward) {
  const at::NoGradGuard no_grad;
  const auto model = decoder();
  const at::Tensor text = small_ids(3, 10);
  Cache cache = model->cache(3, 10, at::kFloat, at::kCPU);
  std::int64_t read = 0;
  for (const std::int64_t count : {4, 1, 3, 1, 1}) {  // a prompt, a token, more of a prompt, tokens
    const at::Tensor got = model->next(text.narrow(1, read, count), cache);
    read += count;
    EXPECT_EQ(got.sizes(), (at::IntArrayRef{3, 300}));
    EXPECT_TRUE(at::allclose(got, model->forward(text.narrow(1, 0, read)).select(1, read - 1), 1e-4, 1e-5)) << read;
    EXPECT_EQ(cache[1].length, read);
  }
  EXPECT_THROW(model->next(text.narrow(1, 0, 1), cache), c10::Error) << "the cache is full";
}

TEST_P(DecoderReading, RefusesACacheThatDoesNotFit) {
  const auto model = decoder();
  Cache cache = model->cache(1, 40, at::kFloat, at::kCPU), short_cache = cache;
  EXPECT_THROW(model->next(small_ids(1, 2), cache), c10::Error) << "gradients are recorded";
  const at::NoGradGuard no_grad;
  short_cache.pop_back();
  EXPECT_THROW(model->next(small_ids(1, 2), short_cache), c10::Error) << "a layer is missing";
  model->next(small_ids(1, 30), cache);
  EXPECT_THROW(model->next(small_ids(1, 3), cache), c10::Error) << "more than max_position_embeddings = 32";
}

TEST_P(DecoderReading, EveryCallGoesThroughTheWrappers) {
  const auto model = decoder();
  int calls = 0;
  const CallWrapper counting = [&](Tensors inputs, const Forward& forward) {
    ++calls;
    return forward(std::move(inputs));
  };
  model->wrapper = counting;
  for (const auto& block : model->blocks()) {
    block->wrapper = block->attention_wrapper = block->mlp_wrapper = counting;
  }
  model->loss(small_ids(1, 3), small_ids(1, 3)).backward();
  EXPECT_EQ(calls, 1 + 2 * 3);
  const at::NoGradGuard no_grad;
  Cache cache = model->cache(1, 8, at::kFloat, at::kCPU);
  model->next(small_ids(1, 3), cache);
  EXPECT_EQ(calls, 2 * (1 + 2 * 3));
}

INSTANTIATE_TEST_SUITE_P(Families, DecoderReading, ::testing::Values("llama", "gpt_neox"),
                         [](const auto& given) { return std::string(given.param); });

}  // namespace
}  // namespace worker
