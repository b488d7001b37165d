#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fsdp/text/json.h"
#include "spec/tables/bert_keys.h"
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

class BertModel;
class BertPredictions;

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

/// The architectures of BERT that are trained here, as config.json names them.
inline constexpr std::string_view kBertForMaskedLm = "BertForMaskedLM";
inline constexpr std::string_view kBertClassifier = "BertForSequenceClassification";

/// The further names that a file of a BERT without tied weights has for a parameter: transformers 5 adds the decoder's
/// bias under a name of its own, and transformers 4 takes the other name.
std::vector<std::string> second_bert_names(const std::string& parameter);

/// The names of a classifier's labels in config.json, by number: `id2label`, else `num_labels` names "LABEL_0",
/// "LABEL_1", .., else two, as transformers has it. Throws std::invalid_argument that names the member and the remedy
/// when the numbers are not 0, 1, .. or a name is no text.
std::vector<std::string> bert_labels(const fsdp::Json& config);

/// Writes `id2label`, `label2id` and `problem_type` of a classifier with these labels, each of which is another text.
/// Throws std::invalid_argument naming a label that comes twice.
void write_bert_labels(std::span<const std::string> labels, fsdp::Json& config);

}  // namespace worker
