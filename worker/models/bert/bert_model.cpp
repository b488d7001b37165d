#include "worker/models/bert/bert_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <stdexcept>

#include "worker/models/config_members.h"
#include "worker/models/head_loss.h"
#include "worker/models/layers/attention.h"
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

/// The sum of word, token-type and position embeddings, with norm and dropout.
class BertEmbeddings : public torch::nn::Module {
 public:
  explicit BertEmbeddings(const spec::Bert& c)
      : words(add_child<Embedding>(*this, "word_embeddings", c.vocab_size, c.hidden_size)),
        dropout_(c.hidden_dropout_prob),
        positions_(add_child<Embedding>(*this, "position_embeddings", c.max_position_embeddings, c.hidden_size)),
        types_(add_child<Embedding>(*this, "token_type_embeddings", c.type_vocab_size, c.hidden_size)),
        norm_(add_child<LayerNorm>(*this, "LayerNorm", c.hidden_size, c.layer_norm_eps)) {}

  /// -> [batch, positions, hidden]
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& types) const {
    const at::Tensor places = at::arange(ids.size(1), at::TensorOptions(at::kLong).device(ids.device()));
    const at::Tensor of_words = words->forward(ids);
    const at::Tensor of_types = types_->forward(types.defined() ? types : at::zeros_like(ids));
    return drop_out(norm_->forward(of_words + of_types + positions_->forward(places)), dropout_, is_training());
  }

  std::shared_ptr<Embedding> words;

 private:
  double dropout_;
  std::shared_ptr<Embedding> positions_, types_;
  std::shared_ptr<LayerNorm> norm_;
};

/// Multi-head self-attention without its output projection.
class BertSelfAttention : public torch::nn::Module {
 public:
  explicit BertSelfAttention(const spec::Bert& c)
      : heads_(c.num_attention_heads),
        dropout_(c.attention_probs_dropout_prob),
        query_(add_child<Linear>(*this, "query", c.hidden_size, c.hidden_size, true)),
        key_(add_child<Linear>(*this, "key", c.hidden_size, c.hidden_size, true)),
        value_(add_child<Linear>(*this, "value", c.hidden_size, c.hidden_size, true)) {}

  at::Tensor forward(const at::Tensor& x, const Mask& mask) const {
    const auto heads_of = [&](const Linear& projection) { return split_heads(projection.forward(x), heads_); };
    return joined_heads(
        attention(heads_of(*query_), heads_of(*key_), heads_of(*value_), mask, /*scale=*/{}, dropout_, is_training()));
  }

 private:
  std::int64_t heads_;
  double dropout_;
  std::shared_ptr<Linear> query_, key_, value_;
};

/// norm(dropout(W x + b) + before): how both parts of a block end.
class BertOutput : public torch::nn::Module {
 public:
  BertOutput(const spec::Bert& c, std::int64_t in)
      : dropout_(c.hidden_dropout_prob),
        dense_(add_child<Linear>(*this, "dense", in, c.hidden_size, true)),
        norm_(add_child<LayerNorm>(*this, "LayerNorm", c.hidden_size, c.layer_norm_eps)) {}

  /// x [.., in], before [.., hidden] -> [.., hidden]
  at::Tensor forward(const at::Tensor& x, const at::Tensor& before) const {
    return norm_->forward(drop_out(dense_->forward(x), dropout_, is_training()) + before);
  }

 private:
  double dropout_;
  std::shared_ptr<Linear> dense_;
  std::shared_ptr<LayerNorm> norm_;
};

/// y = norm(x + attention(x)), then norm(y + feed_forward(y)).
class BertLayer : public Block {
 public:
  explicit BertLayer(const spec::Bert& c) : act_(activation_of(c.hidden_act)) {
    const auto of_attention = add_group(*this, "attention");
    self_ = add_child<BertSelfAttention>(*of_attention, "self", c);
    attention_output_ = add_child<BertOutput>(*of_attention, "output", c, c.hidden_size);
    intermediate_ =
        add_child<Linear>(*add_group(*this, "intermediate"), "dense", c.hidden_size, c.intermediate_size, true);
    output_ = add_child<BertOutput>(*this, "output", c, c.intermediate_size);
  }

  /// [batch, positions, hidden] -> [batch, positions, hidden].
  at::Tensor forward(at::Tensor x, const Mask& mask) const {
    // The lambdas copy the mask, because a recomputing wrapper may call them after the model's own forward has
    // returned.
    return call(wrapper, std::move(x), [this, mask](const at::Tensor& in) {
      const at::Tensor mid = call(attention_wrapper, in, [this, mask](const at::Tensor& a) {
        return attention_output_->forward(self_->forward(a, mask), a);
      });
      return call(mlp_wrapper, mid, [this](const at::Tensor& m) {
        return output_->forward(activate(act_, intermediate_->forward(m)), m);
      });
    });
  }

 private:
  Activation act_;
  std::shared_ptr<BertSelfAttention> self_;
  std::shared_ptr<BertOutput> attention_output_, output_;
  std::shared_ptr<Linear> intermediate_;
};

/// Embeddings, blocks and, where a head reads it, the pooler: tanh(W x + b) of each row's first token.
class BertModel : public torch::nn::Module {
 public:
  BertModel(const spec::Bert& c, bool with_pooler)
      : embeddings(add_child<BertEmbeddings>(*this, "embeddings", c)), config_(c) {
    layers = add_list<BertLayer>(*add_group(*this, "encoder"), "layer", c.num_hidden_layers, c);
    if (with_pooler)
      pooler_ = add_child<Linear>(*add_group(*this, "pooler"), "dense", c.hidden_size, c.hidden_size, true);
  }

  /// -> [batch, positions, hidden]. Throws c10::Error for more positions than the model takes, and for a mask or token
  /// types of another shape than the ids.
  at::Tensor forward(const BertRows& rows) const {
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

  /// [batch, positions, hidden] -> [batch, hidden]. Not to be called without a pooler.
  at::Tensor pool(const at::Tensor& hidden) const { return at::tanh(pooler_->forward(hidden.select(1, 0))); }

  std::shared_ptr<BertEmbeddings> embeddings;
  std::vector<std::shared_ptr<BertLayer>> layers;

 private:
  spec::Bert config_;
  std::shared_ptr<Linear> pooler_;  ///< null without one
};

BertEncoder::BertEncoder(const spec::Bert& config, bool with_pooler) : config_(config) {
  check_bert(config_);
  bert_ = add_child<BertModel>(*this, "bert", config_, with_pooler);
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

/// The head of masked-language modelling: a transform, and a decoder that is the table of word embeddings or, with
/// tie_word_embeddings = false, has a weight of its own. Its parameters are "cls.predictions.*".
class BertPredictions : public torch::nn::Module {
 public:
  explicit BertPredictions(const spec::Bert& c)
      : bias(register_parameter("bias", uninitialised({c.vocab_size}))), act_(activation_of(c.hidden_act)) {
    const auto transform = add_group(*this, "transform");
    dense_ = add_child<Linear>(*transform, "dense", c.hidden_size, c.hidden_size, true);
    norm_ = add_child<LayerNorm>(*transform, "LayerNorm", c.hidden_size, c.layer_norm_eps);
    if (!c.tie_word_embeddings) decoder = add_child<Linear>(*this, "decoder", c.hidden_size, c.vocab_size);
  }

  /// Computes the input of the decoder: [.., hidden] -> [.., hidden].
  at::Tensor transform(const at::Tensor& hidden) const {
    return norm_->forward(activate(act_, dense_->forward(hidden)));
  }

  std::shared_ptr<Linear> decoder;  ///< null when tied; without its bias
  at::Tensor bias;                  ///< [vocab]: the decoder's

 private:
  Activation act_;
  std::shared_ptr<Linear> dense_;
  std::shared_ptr<LayerNorm> norm_;
};

BertForMaskedLm::BertForMaskedLm(const spec::Bert& config) : BertEncoder(config) {
  predictions_ = add_child<BertPredictions>(*add_group(*this, "cls"), "predictions", config_);
}

const at::Tensor& BertForMaskedLm::decoder() const {
  return predictions_->decoder ? predictions_->decoder->weight : bert_->embeddings->words->weight;
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
  classifier_ = add_child<Linear>(*this, "classifier", config_.hidden_size, labels, true);
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
