#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "spec/tables/bert_keys.h"
#include "worker/models/layers/attention.h"
#include "worker/models/layers/layers.h"

// BERT (Devlin et al., arXiv 1810.04805): an encoder with norms after the sums. A model knows nothing of sharding. Its
// parameters are fp32 and have Hugging Face's names.
namespace worker {

/// Input that a BERT reads.
struct BertRows {
  BertRows(at::Tensor token_ids, at::Tensor attention_mask = {}, at::Tensor token_types = {})
      : ids(std::move(token_ids)), mask(std::move(attention_mask)), types(std::move(token_types)) {}

  at::Tensor ids;    ///< int64 [batch, positions]
  at::Tensor mask;   ///< [batch, positions], true or above 0 where a token counts; may be undefined: all count
  at::Tensor types;  ///< int64 [batch, positions]: token types, below type_vocab_size; may be undefined: all 0
};

/// The positions of a batch that masked-language modelling predicts.
struct MaskedTargets {
  at::Tensor positions;  ///< int64 [n]: row * positions of a row + place in the row
  at::Tensor ids;        ///< int64 [n]: the token that belongs there
};

/// Collects the targets of a batch, int64 [batch, positions] on the CPU with kNoTarget where nothing is predicted.
/// Throws c10::Error for targets on another device: there, the number of targets would have to be waited for.
MaskedTargets masked_targets(const at::Tensor& targets);

/// The sum of word, token-type and position embeddings, with norm and dropout.
class BertEmbeddings : public torch::nn::Module {
 public:
  explicit BertEmbeddings(const spec::Bert& config);
  /// -> [batch, positions, hidden]
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& types) const;

  std::shared_ptr<Embedding> word_embeddings;

 private:
  double dropout_;
  std::shared_ptr<Embedding> position_embeddings_, token_type_embeddings_;
  std::shared_ptr<LayerNorm> norm_;
};

/// Multi-head self-attention without its output projection.
class BertSelfAttention : public torch::nn::Module {
 public:
  explicit BertSelfAttention(const spec::Bert& config);
  at::Tensor forward(const at::Tensor& x, const Mask& mask) const;

 private:
  std::int64_t heads_, head_dim_;
  double dropout_;
  std::shared_ptr<Linear> query_, key_, value_;
};

/// norm(dropout(W x + b) + before): how both parts of a block end.
class BertOutput : public torch::nn::Module {
 public:
  BertOutput(const spec::Bert& config, std::int64_t in);
  /// x [.., in], before [.., hidden] -> [.., hidden]
  at::Tensor forward(const at::Tensor& x, const at::Tensor& before) const;

 private:
  double dropout_;
  std::shared_ptr<Linear> dense_;
  std::shared_ptr<LayerNorm> norm_;
};

/// y = norm(x + attention(x)), then norm(y + feed_forward(y)).
class BertLayer : public Block {
 public:
  explicit BertLayer(const spec::Bert& config);
  /// [batch, positions, hidden] -> [batch, positions, hidden].
  at::Tensor forward(at::Tensor x, const Mask& mask) const;

 private:
  Activation act_;
  std::shared_ptr<BertSelfAttention> self_;
  std::shared_ptr<BertOutput> attention_output_, output_;
  std::shared_ptr<Linear> intermediate_;
};

/// Embeddings, blocks and, where a head reads it, the pooler: tanh(W x + b) of each row's first token.
class BertModel : public torch::nn::Module {
 public:
  BertModel(const spec::Bert& config, bool with_pooler);
  /// -> [batch, positions, hidden]. Throws c10::Error for more positions than the model takes, and for a mask or token
  /// types of another shape than the ids.
  at::Tensor forward(const BertRows& rows) const;
  /// [batch, positions, hidden] -> [batch, hidden]. Not to be called without a pooler.
  at::Tensor pool(const at::Tensor& hidden) const;

  std::shared_ptr<BertEmbeddings> embeddings;
  std::vector<std::shared_ptr<BertLayer>> layers;

 private:
  spec::Bert config_;
  std::shared_ptr<Linear> pooler_;  ///< null without one
};

/// A BERT without a head: what muster embed runs, and the base of those with a head. Its parameters are "bert.*".
///
/// The root's wrapper and those of the blocks own the calls, so with a sharding engine all ranks must make the same
/// calls in the same order. The number of masked positions may differ by rank.
class BertEncoder : public torch::nn::Module, public Wrapped {
 public:
  /// The parameters have no values yet. Throws std::invalid_argument naming key, value and remedy when the sizes
  /// contradict each other.
  explicit BertEncoder(const spec::Bert& config, bool with_pooler = false);

  const spec::Bert& config() const { return config_; }
  std::vector<std::shared_ptr<Block>> blocks() const;
  /// Returns the input of a head: [batch, positions, hidden].
  at::Tensor hidden(const BertRows& rows) const;

 protected:
  /// `head` of what the model makes of the rows, as one call of the root.
  template <class Head>
  at::Tensor through(const BertRows& rows, Head head) const;

  spec::Bert config_;
  std::shared_ptr<BertModel> bert_;
};

/// The head of masked-language modelling: a transform, and a decoder that is the table of word embeddings or, with
/// tie_word_embeddings = false, has a weight of its own. Its parameters are "cls.predictions.*".
class BertPredictions : public torch::nn::Module {
 public:
  explicit BertPredictions(const spec::Bert& config);
  /// Computes the input of the decoder: [.., hidden] -> [.., hidden].
  at::Tensor transform(const at::Tensor& hidden) const;

  std::shared_ptr<Linear> decoder;  ///< null when tied; without its bias
  at::Tensor bias;                  ///< [vocab]: the decoder's

 private:
  Activation act_;
  std::shared_ptr<Linear> dense_;
  std::shared_ptr<LayerNorm> norm_;
};

/// BERT that predicts masked tokens.
class BertForMaskedLm : public BertEncoder {
 public:
  explicit BertForMaskedLm(const spec::Bert& config);

  /// Logits of all positions, [batch, positions, vocab].
  at::Tensor forward(const BertRows& rows) const;
  /// Logits of some positions, int64 [n] as in MaskedTargets: [n, vocab].
  at::Tensor forward(const BertRows& rows, const at::Tensor& positions) const;
  /// The sum of the cross entropies of the targets, in nats. The head computes the positions with a target alone, and
  /// not all their logits at once; see linear_cross_entropy(). Without a target the sum is 0 and so are its gradients.
  at::Tensor loss(const BertRows& rows, const MaskedTargets& targets) const;
  /// Returns the same sum for targets as masked_targets() takes them.
  at::Tensor loss(const BertRows& rows, const at::Tensor& targets) const;

 private:
  const at::Tensor& decoder() const;

  std::shared_ptr<BertPredictions> predictions_;
};

/// BERT that sorts texts into classes, by the pooler and one linear layer.
class BertForSequenceClassification : public BertEncoder {
 public:
  /// Throws std::invalid_argument for fewer than two labels, too.
  BertForSequenceClassification(const spec::Bert& config, std::int64_t labels);

  /// Logits [batch, labels].
  at::Tensor forward(const BertRows& rows) const;
  /// class_loss() of the logits against the labels, int64 [batch].
  at::Tensor loss(const BertRows& rows, const at::Tensor& labels, const at::Tensor& class_weights = {}) const;

 private:
  at::Tensor logits(const at::Tensor& hidden) const;

  double dropout_;
  std::shared_ptr<Linear> classifier_;
};

}  // namespace worker
