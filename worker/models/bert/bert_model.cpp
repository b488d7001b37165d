#include "worker/models/bert/bert_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "worker/models/config_members.h"
#include "worker/models/head_loss.h"
#include "worker/models/layers/attention.h"
#include "worker/models/layers/layers.h"
#include "worker/models/ops.h"

namespace worker {
namespace {

/// Throws std::invalid_argument when the sizes contradict each other.
void check_bert(const spec::Bert& model) {
  check_sizes({{"vocab_size", model.vocab_size},
               {"hidden_size", model.hidden_size},
               {"intermediate_size", model.intermediate_size},
               {"num_hidden_layers", model.num_hidden_layers},
               {"num_attention_heads", model.num_attention_heads},
               {"max_position_embeddings", model.max_position_embeddings},
               {"type_vocab_size", model.type_vocab_size}});
  check_no_conflict(spec::conflicts_of(model));
}

/// A child that only groups parameters under a name of Hugging Face.
std::shared_ptr<torch::nn::Module> bert_group(torch::nn::Module& parent, const char* name) {
  return parent.register_module(name, std::make_shared<torch::nn::Module>());
}

/// Rows [n, hidden] at flat positions of [batch, positions, hidden].
at::Tensor bert_rows_at(const at::Tensor& hidden, const at::Tensor& positions) {
  return hidden.flatten(0, 1).index_select(0, positions.to(hidden.device(), /*non_blocking=*/true));
}

}  // namespace

MaskedTargets masked_targets(const at::Tensor& targets) {
  TORCH_CHECK(targets.dim() == 2 && targets.is_cpu() && targets.scalar_type() == at::kLong,
              "masked_targets: targets are ", targets.sizes(), " of ", targets.scalar_type(), " on ", targets.device(),
              "; want int64 [batch, positions] on the CPU, or positions and ids");
  const at::Tensor dense = targets.contiguous();
  const auto* values = dense.const_data_ptr<std::int64_t>();
  const std::int64_t count = dense.numel() - std::count(values, values + dense.numel(), data::order::kNoTarget);
  MaskedTargets out{at::empty({count}, at::kLong), at::empty({count}, at::kLong)};
  auto* positions = out.positions.mutable_data_ptr<std::int64_t>();
  auto* ids = out.ids.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < dense.numel(); ++i) {
    if (values[i] == data::order::kNoTarget) continue;
    *positions++ = i;
    *ids++ = values[i];
  }
  return out;
}

BertEmbeddings::BertEmbeddings(const spec::Bert& c)
    : word_embeddings(register_module("word_embeddings", std::make_shared<Embedding>(c.vocab_size, c.hidden_size))),
      dropout_(c.hidden_dropout_prob),
      position_embeddings_(register_module("position_embeddings",
                                           std::make_shared<Embedding>(c.max_position_embeddings, c.hidden_size))),
      token_type_embeddings_(
          register_module("token_type_embeddings", std::make_shared<Embedding>(c.type_vocab_size, c.hidden_size))),
      norm_(register_module("LayerNorm", std::make_shared<LayerNorm>(c.hidden_size, c.layer_norm_eps))) {}

at::Tensor BertEmbeddings::forward(const at::Tensor& ids, const at::Tensor& types) const {
  const at::Tensor positions = at::arange(ids.size(1), at::TensorOptions(at::kLong).device(ids.device()));
  const at::Tensor words = word_embeddings->forward(ids);
  const at::Tensor of_types = token_type_embeddings_->forward(types.defined() ? types : at::zeros_like(ids));
  return drop_out(norm_->forward(words + of_types + position_embeddings_->forward(positions)), dropout_, is_training());
}

BertSelfAttention::BertSelfAttention(const spec::Bert& c)
    : heads_(c.num_attention_heads),
      head_dim_(c.hidden_size / c.num_attention_heads),
      dropout_(c.attention_probs_dropout_prob),
      query_(register_module("query", std::make_shared<Linear>(c.hidden_size, c.hidden_size, true))),
      key_(register_module("key", std::make_shared<Linear>(c.hidden_size, c.hidden_size, true))),
      value_(register_module("value", std::make_shared<Linear>(c.hidden_size, c.hidden_size, true))) {}

at::Tensor BertSelfAttention::forward(const at::Tensor& x, const Mask& mask) const {
  const auto batch = x.size(0), positions = x.size(1);
  const auto heads_of = [&](const Linear& projection) {
    return projection.forward(x).view({batch, positions, heads_, head_dim_}).transpose(1, 2);
  };
  const at::Tensor out =
      attention(heads_of(*query_), heads_of(*key_), heads_of(*value_), mask, /*scale=*/{}, dropout_, is_training());
  return out.transpose(1, 2).reshape({batch, positions, heads_ * head_dim_});
}

BertOutput::BertOutput(const spec::Bert& c, std::int64_t in)
    : dropout_(c.hidden_dropout_prob),
      dense_(register_module("dense", std::make_shared<Linear>(in, c.hidden_size, true))),
      norm_(register_module("LayerNorm", std::make_shared<LayerNorm>(c.hidden_size, c.layer_norm_eps))) {}

at::Tensor BertOutput::forward(const at::Tensor& x, const at::Tensor& before) const {
  return norm_->forward(drop_out(dense_->forward(x), dropout_, is_training()) + before);
}

BertLayer::BertLayer(const spec::Bert& c) : act_(activation_of(c.hidden_act)) {
  const auto of_attention = bert_group(*this, "attention");
  self_ = of_attention->register_module("self", std::make_shared<BertSelfAttention>(c));
  attention_output_ = of_attention->register_module("output", std::make_shared<BertOutput>(c, c.hidden_size));
  intermediate_ = bert_group(*this, "intermediate")
                      ->register_module("dense", std::make_shared<Linear>(c.hidden_size, c.intermediate_size, true));
  output_ = register_module("output", std::make_shared<BertOutput>(c, c.intermediate_size));
}

at::Tensor BertLayer::forward(at::Tensor x, const Mask& mask) const {
  // The lambdas copy the mask, because a recomputing wrapper may call them after the model's own forward has returned.
  return call(wrapper, std::move(x), [this, mask](const at::Tensor& in) {
    const at::Tensor mid = call(attention_wrapper, in, [this, mask](const at::Tensor& a) {
      return attention_output_->forward(self_->forward(a, mask), a);
    });
    return call(mlp_wrapper, mid,
                [this](const at::Tensor& m) { return output_->forward(activate(act_, intermediate_->forward(m)), m); });
  });
}

BertModel::BertModel(const spec::Bert& c, bool with_pooler)
    : embeddings(register_module("embeddings", std::make_shared<BertEmbeddings>(c))), config_(c) {
  const auto list = bert_group(*bert_group(*this, "encoder"), "layer");
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) {
    layers.push_back(list->register_module(std::to_string(i), std::make_shared<BertLayer>(c)));
  }
  if (!with_pooler) return;
  pooler_ = bert_group(*this, "pooler")
                ->register_module("dense", std::make_shared<Linear>(c.hidden_size, c.hidden_size, true));
}

at::Tensor BertModel::forward(const BertRows& rows) const {
  const at::Tensor& ids = rows.ids;
  TORCH_CHECK(ids.dim() == 2 && ids.size(1) <= config_.max_position_embeddings, "bert: got token ids of shape ",
              ids.sizes(),
              "; want [batch, positions] with at most max_position_embeddings = ", config_.max_position_embeddings,
              " positions");
  for (const auto& [what, given] : {std::pair{"an attention mask", &rows.mask}, {"token types", &rows.types}}) {
    TORCH_CHECK(!given->defined() || given->sizes() == ids.sizes(), "bert: got ", what, " of shape ", given->sizes(),
                "; want that of the token ids, ", ids.sizes());
  }
  const Mask mask = rows.mask.defined() ? padding_mask(rows.mask) : Mask{};
  at::Tensor x = embeddings->forward(ids, rows.types);
  for (const auto& layer : layers) x = layer->forward(x, mask);
  return x;
}

at::Tensor BertModel::pool(const at::Tensor& hidden) const {
  return at::tanh(pooler_->forward(hidden.select(1, 0)));
}

BertEncoder::BertEncoder(const spec::Bert& config, bool with_pooler) : config_(config) {
  check_bert(config_);
  bert_ = register_module("bert", std::make_shared<BertModel>(config_, with_pooler));
}

std::vector<std::shared_ptr<Block>> BertEncoder::blocks() const {
  return {bert_->layers.begin(), bert_->layers.end()};
}

// The mask and the token types are captured, because they need no gradient.
template <class Head>
at::Tensor BertEncoder::through(const BertRows& rows, Head head) const {
  return call(wrapper, rows.ids,
              [this, mask = rows.mask, types = rows.types, head = std::move(head)](const at::Tensor& ids) {
                return head(bert_->forward({ids, mask, types}));
              });
}

at::Tensor BertEncoder::hidden(const BertRows& rows) const {
  return through(rows, [](at::Tensor hidden) { return hidden; });
}

BertPredictions::BertPredictions(const spec::Bert& c)
    : bias(register_parameter("bias", uninitialised({c.vocab_size}))), act_(activation_of(c.hidden_act)) {
  const auto transform = bert_group(*this, "transform");
  dense_ = transform->register_module("dense", std::make_shared<Linear>(c.hidden_size, c.hidden_size, true));
  norm_ = transform->register_module("LayerNorm", std::make_shared<LayerNorm>(c.hidden_size, c.layer_norm_eps));
  if (!c.tie_word_embeddings) {
    decoder = register_module("decoder", std::make_shared<Linear>(c.hidden_size, c.vocab_size));
  }
}

at::Tensor BertPredictions::transform(const at::Tensor& hidden) const {
  return norm_->forward(activate(act_, dense_->forward(hidden)));
}

BertForMaskedLm::BertForMaskedLm(const spec::Bert& config) : BertEncoder(config) {
  predictions_ = bert_group(*this, "cls")->register_module("predictions", std::make_shared<BertPredictions>(config_));
}

const at::Tensor& BertForMaskedLm::decoder() const {
  return predictions_->decoder ? predictions_->decoder->weight : bert_->embeddings->word_embeddings->weight;
}

at::Tensor BertForMaskedLm::forward(const BertRows& rows) const {
  return through(rows, [this](const at::Tensor& hidden) {
    return worker::linear(predictions_->transform(hidden), decoder(), predictions_->bias);
  });
}

at::Tensor BertForMaskedLm::forward(const BertRows& rows, const at::Tensor& positions) const {
  return through(rows, [this, positions](const at::Tensor& hidden) {
    return worker::linear(predictions_->transform(bert_rows_at(hidden, positions)), decoder(), predictions_->bias);
  });
}

at::Tensor BertForMaskedLm::loss(const BertRows& rows, const MaskedTargets& targets) const {
  return through(rows, [this, targets](const at::Tensor& hidden) {
    return linear_cross_entropy(predictions_->transform(bert_rows_at(hidden, targets.positions)), decoder(),
                                targets.ids.to(hidden.device(), /*non_blocking=*/true), predictions_->bias);
  });
}

at::Tensor BertForMaskedLm::loss(const BertRows& rows, const at::Tensor& targets) const {
  TORCH_CHECK(targets.sizes() == rows.ids.sizes(), "bert: got targets of shape ", targets.sizes(),
              "; want that of the token ids, ", rows.ids.sizes());
  return loss(rows, masked_targets(targets));
}

BertForSequenceClassification::BertForSequenceClassification(const spec::Bert& config, std::int64_t labels)
    : BertEncoder(config, /*with_pooler=*/true), dropout_(config.dropout_of_classifier()) {
  if (labels < 2) {
    throw std::invalid_argument("the classifier has " + std::to_string(labels) +
                                " labels: want at least 2; give data with two or more classes");
  }
  classifier_ = register_module("classifier", std::make_shared<Linear>(config_.hidden_size, labels, true));
}

at::Tensor BertForSequenceClassification::logits(const at::Tensor& hidden) const {
  return classifier_->forward(drop_out(bert_->pool(hidden), dropout_, is_training()));
}

at::Tensor BertForSequenceClassification::forward(const BertRows& rows) const {
  return through(rows, [this](const at::Tensor& hidden) { return logits(hidden); });
}

at::Tensor BertForSequenceClassification::loss(const BertRows& rows, const at::Tensor& labels,
                                               const at::Tensor& class_weights) const {
  return through(rows, [this, labels, class_weights](const at::Tensor& hidden) {
    return class_loss(logits(hidden), labels, class_weights);
  });
}

}  // namespace worker
