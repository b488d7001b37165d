// Goal: BERT has Hugging Face's names and shapes, padding counts for nothing, and its head computes the positions that
// have a target alone. What it computes is compared with transformers by bert_peers_test.cpp.
#include "worker/models/bert/bert_model.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/function.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "tests/worker/small_bert.h"
#include "worker/models/head_loss.h"
#include "worker/train/strategy.h"

namespace worker {
namespace {

using testing::drawn_bert;
using ::testing::HasSubstr;
using testing::mask_of;
using testing::parameters_of;
using testing::small_bert;
using testing::small_ids;

/// Targets at every third position.
at::Tensor sparse_bert_targets(const at::Tensor& ids) {
  const at::Tensor places = at::arange(ids.numel()).view(ids.sizes());
  return at::where(places.remainder(3) == 1, ids, at::full_like(ids, data::order::kNoTarget));
}

at::Tensor bert_numbers(const std::vector<std::int64_t>& values) {
  return at::tensor(values);
}

TEST(Bert, CarriesHuggingFacesNamesAndShapes) {
  const auto p = parameters_of(*drawn_bert<BertForMaskedLm>(small_bert(/*tied=*/false)));
  EXPECT_EQ(p.size(), 5u + 2 * 16 + 6);
  EXPECT_EQ(p.at("bert.embeddings.word_embeddings.weight").sizes(), (at::IntArrayRef{40, 16}));
  EXPECT_EQ(p.at("bert.embeddings.position_embeddings.weight").sizes(), (at::IntArrayRef{32, 16}));
  EXPECT_EQ(p.at("bert.embeddings.token_type_embeddings.weight").sizes(), (at::IntArrayRef{2, 16}));
  EXPECT_EQ(p.at("bert.embeddings.LayerNorm.bias").sizes(), (at::IntArrayRef{16}));
  EXPECT_EQ(p.at("bert.encoder.layer.1.attention.self.query.weight").sizes(), (at::IntArrayRef{16, 16}));
  EXPECT_EQ(p.at("bert.encoder.layer.1.attention.self.value.bias").sizes(), (at::IntArrayRef{16}));
  EXPECT_EQ(p.at("bert.encoder.layer.0.attention.output.dense.weight").sizes(), (at::IntArrayRef{16, 16}));
  EXPECT_EQ(p.at("bert.encoder.layer.0.attention.output.LayerNorm.weight").sizes(), (at::IntArrayRef{16}));
  EXPECT_EQ(p.at("bert.encoder.layer.0.intermediate.dense.weight").sizes(), (at::IntArrayRef{24, 16}));
  EXPECT_EQ(p.at("bert.encoder.layer.0.output.dense.weight").sizes(), (at::IntArrayRef{16, 24}));
  EXPECT_EQ(p.at("cls.predictions.transform.dense.bias").sizes(), (at::IntArrayRef{16}));
  EXPECT_EQ(p.at("cls.predictions.decoder.weight").sizes(), (at::IntArrayRef{40, 16}));
  EXPECT_EQ(p.at("cls.predictions.bias").sizes(), (at::IntArrayRef{40}));
  EXPECT_EQ(p.at("cls.predictions.bias").abs().max().item<double>(), 0);
  EXPECT_EQ(p.at("cls.predictions.transform.LayerNorm.weight").min().item<double>(), 1);
  EXPECT_EQ(parameters_of(*drawn_bert<BertForMaskedLm>(small_bert())).count("cls.predictions.decoder.weight"), 0u);
  const auto c = parameters_of(*drawn_bert<BertForSequenceClassification>(small_bert(), 3));
  EXPECT_EQ(c.size(), 5u + 2 * 16 + 4);
  EXPECT_EQ(c.at("bert.pooler.dense.weight").sizes(), (at::IntArrayRef{16, 16}));
  EXPECT_EQ(c.at("classifier.weight").sizes(), (at::IntArrayRef{3, 16}));
}

TEST(Bert, PaddingCountsForNothing) {
  const at::NoGradGuard no_grad;
  const auto model = drawn_bert<BertForMaskedLm>(small_bert());
  const at::Tensor ids = small_ids(2, 8), mask = mask_of({8, 5}, 8), padded = at::where(mask, ids, at::zeros_like(ids));
  EXPECT_FALSE(at::allclose(model->hidden(ids)[1], model->hidden(padded)[1], 1e-2, 1e-3));
  const at::Tensor with = model->hidden({padded, mask});
  EXPECT_TRUE(at::allclose(with[0], model->hidden(ids)[0], 1e-4, 1e-5));
  EXPECT_TRUE(at::allclose(with[1].narrow(0, 0, 5), model->hidden(ids.narrow(1, 0, 5))[1], 1e-4, 1e-5));
  const at::Tensor as_numbers = mask.to(at::kLong), nothing = at::zeros_like(as_numbers);
  EXPECT_TRUE(at::equal(model->hidden({padded, as_numbers}), with)) << "as a tokenizer of transformers has it";
  EXPECT_TRUE(model->hidden({padded, nothing}).isfinite().all().item<bool>()) << "rows that fill a batch";
}

TEST(Bert, TokenTypesMatterAndAreZeroWithoutAny) {
  const at::NoGradGuard no_grad;
  const auto model = drawn_bert<BertForSequenceClassification>(small_bert(), 3);
  const at::Tensor ids = small_ids(2, 8), ones = at::full_like(ids, 1);
  EXPECT_TRUE(at::equal(model->forward(ids), model->forward({ids, {}, at::zeros_like(ids)})));
  EXPECT_FALSE(at::allclose(model->forward(ids), model->forward({ids, {}, ones}), 1e-2, 1e-3));
}

TEST(Bert, DropoutIsOfTrainingAlone) {
  const at::NoGradGuard no_grad;
  const at::Tensor ids = small_ids(2, 8);
  const auto plain = drawn_bert<BertForSequenceClassification>(small_bert(), 3);
  for (const auto probability :
       {&spec::Bert::hidden_dropout_prob, &spec::Bert::attention_probs_dropout_prob, &spec::Bert::classifier_dropout}) {
    auto config = small_bert();
    config.*probability = 0.5;
    const auto model = drawn_bert<BertForSequenceClassification>(config, 3);
    EXPECT_FALSE(at::allclose(model->forward(ids), plain->forward(ids), 1e-2, 1e-3));
    model->eval();
    EXPECT_TRUE(at::equal(model->forward(ids), plain->forward(ids)));
  }
  auto config = small_bert();
  config.classifier_dropout = -1;
  config.hidden_dropout_prob = 0.25;
  EXPECT_EQ(config.dropout_of_classifier(), 0.25);
}

TEST(Bert, DropoutDrawsTheSameNumbersWhereABlockIsRecomputed) {
  auto config = small_bert();
  config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.5;
  const auto plain = drawn_bert<BertForMaskedLm>(config), recomputed = drawn_bert<BertForMaskedLm>(config);
  recomputed->blocks()[0]->wrapper = recomputing(*recomputed->blocks()[0]);
  recomputed->blocks()[1]->attention_wrapper = recomputing(*recomputed->blocks()[1]);
  recomputed->blocks()[1]->mlp_wrapper = recomputing(*recomputed->blocks()[1]);
  const at::Tensor ids = small_ids(2, 8);
  for (const auto& model : {plain, recomputed}) {
    at::manual_seed(9);
    model->loss({ids, mask_of({8, 5}, 8)}, sparse_bert_targets(ids)).backward();
  }
  const auto want = parameters_of(*plain);
  for (const auto& [name, value] : parameters_of(*recomputed)) {
    EXPECT_TRUE(at::equal(value.grad(), want.at(name).grad())) << name;
  }
}

TEST(BertMaskedLm, TheLossIsOfTheTargetsAlone) {
  for (const bool tied : {true, false}) {
    const auto model = drawn_bert<BertForMaskedLm>(small_bert(tied));
    const at::Tensor ids = small_ids(2, 8), targets = sparse_bert_targets(ids);
    const at::Tensor loss = model->loss(ids, targets);
    loss.backward();
    std::map<std::string, at::Tensor> got;
    for (const auto& [name, value] : parameters_of(*model)) got[name] = value.grad().clone();
    model->zero_grad();
    const at::Tensor all = model->forward(ids).flatten(0, 1);
    const at::Tensor want =
        at::cross_entropy_loss(all, targets.flatten(), {}, at::Reduction::Sum, data::order::kNoTarget);
    want.backward();
    EXPECT_TRUE(at::allclose(loss, want, 1e-5, 1e-5));
    for (const auto& [name, value] : parameters_of(*model)) {
      EXPECT_TRUE(at::allclose(got.at(name), value.grad(), 1e-4, 1e-6)) << name;
    }
    const MaskedTargets chosen = masked_targets(targets);
    EXPECT_TRUE(at::equal(chosen.positions, bert_numbers({1, 4, 7, 10, 13})));
    EXPECT_TRUE(at::equal(chosen.ids, ids.flatten().index_select(0, chosen.positions)));
    EXPECT_TRUE(at::allclose(model->forward(ids, chosen.positions), all.index_select(0, chosen.positions), 1e-4, 1e-5));
  }
}

TEST(BertMaskedLm, TheHeadComputesNoOtherPositions) {
  const auto model = drawn_bert<BertForMaskedLm>(small_bert());
  const at::Tensor ids = small_ids(2, 8);
  const at::Tensor loss = model->loss(ids, sparse_bert_targets(ids));
  const auto& below = loss.grad_fn()->next_edge(0);
  ASSERT_EQ(below.function->name(), "NativeLayerNormBackward0") << "the transform's";
  EXPECT_EQ(below.function->input_metadata(0).shape_as_dim_vector()[0], 5);
}

TEST(BertMaskedLm, ABatchWithoutTargetsHasNoLossAndGradientsOfZero) {
  const auto model = drawn_bert<BertForMaskedLm>(small_bert());
  const at::Tensor ids = small_ids(2, 8);
  const at::Tensor loss = model->loss(ids, at::full_like(ids, data::order::kNoTarget));
  EXPECT_EQ(loss.item<double>(), 0);
  loss.backward();
  for (const auto& [name, value] : parameters_of(*model)) {
    ASSERT_TRUE(value.grad().defined()) << name;
    EXPECT_EQ(value.grad().abs().max().item<double>(), 0) << name;
  }
}

TEST(BertMaskedLm, TargetsComeFromTheHost) {
  const at::Tensor ids = small_ids(2, 8);
  for (const auto& [targets, says] : {std::pair{ids.to(at::kMeta), "on meta; want int64 [batch, positions] on the CPU"},
                                      {ids.to(at::kInt), "of Int on cpu"},
                                      {ids.flatten(), "targets are [16]"}}) {
    try {
      masked_targets(targets);
      ADD_FAILURE() << says;
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  }
}

TEST(BertClassification, WeightsOfClassesGiveTheMeanOfCrossEntropyLoss) {
  const auto model = drawn_bert<BertForSequenceClassification>(small_bert(), 3);
  const at::Tensor ids = small_ids(4, 8), labels = bert_numbers({2, 0, data::order::kNoTarget, 1});
  const at::Tensor weights = at::tensor({0.5, 2.0, 3.0}, at::kFloat);
  const at::Tensor logits = model->forward(ids);
  EXPECT_EQ(logits.sizes(), (at::IntArrayRef{4, 3}));
  EXPECT_EQ(class_weight(labels, weights), 5.5);
  EXPECT_EQ(class_weight(labels), 3);
  const at::Tensor mean = at::cross_entropy_loss(logits, labels, weights, at::Reduction::Mean, data::order::kNoTarget);
  EXPECT_TRUE(at::allclose(model->loss(ids, labels, weights) / 5.5, mean, 1e-5, 1e-6));
  EXPECT_EQ(class_loss(logits.to(at::kBFloat16), labels).scalar_type(), at::kFloat);
  EXPECT_THROW(class_weight(bert_numbers({3}), weights), c10::Error);
  EXPECT_THROW(class_weight(bert_numbers({-1}), weights), c10::Error);
  EXPECT_THROW(class_loss(logits, bert_numbers({1})), c10::Error);
}

TEST(Bert, SizesThatDoNotFitAreErrors) {
  auto heads = small_bert(), padding = small_bert(), types = small_bert();
  heads.num_attention_heads = 3;
  padding.pad_token_id = 40;
  types.type_vocab_size = 0;
  for (const auto& [config, says] : {std::pair{heads, "model.hidden_size: want a multiple of num_attention_heads = 3"},
                                     {padding, "model.pad_token_id: want less than vocab_size = 40"},
                                     {types, "model.type_vocab_size = 0: want a whole number of at least 1"}}) {
    try {
      BertForMaskedLm{config};
      ADD_FAILURE() << says;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  }
  EXPECT_THROW((BertForSequenceClassification{small_bert(), 1}), std::invalid_argument);
  const auto model = drawn_bert<BertForMaskedLm>(small_bert());
  EXPECT_THROW(model->forward(small_ids(1, 33)), c10::Error);
  EXPECT_THROW(model->forward({small_ids(2, 8), mask_of({8}, 8)}), c10::Error);
  EXPECT_THROW(model->forward({small_ids(2, 8), {}, small_ids(2, 7)}), c10::Error);
  EXPECT_THROW(model->loss(small_ids(2, 8), small_ids(2, 7)), c10::Error);
}

}  // namespace
}  // namespace worker
