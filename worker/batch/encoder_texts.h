#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/format/dataset.h"
#include "worker/batch/batch.h"

// Rows of texts for an encoder: with labels, for a classifier, or masked, for the objective of BERT.
namespace worker {

struct LabelledOptions {
  std::int64_t length = 0;  ///< tokens of a row, special ones included; longer texts are cut
  /// By label: how much a sample of this label counts. Empty: each counts 1.
  std::vector<double> class_weights = {};
  /// By label: its number in the tensor `labels`, such as a row of the classifier. Empty: the label's own.
  std::vector<std::int64_t> row_of = {};
};

/// Texts of a split of kind labelled, for a classifier. A record is a sample. The tokenizer's special tokens are around
/// it. A text that is too long loses its last tokens, but never its suffix, such as [SEP]. A batch's weight is the sum
/// of its samples' class weights, so that a weighted sum of losses divided by it is PyTorch's weighted mean.
///
/// Tensors: input_ids, attention_mask, token_type_ids, labels. Throws base::UsageError naming the value and the remedy
/// for a length without room for a token, for weights whose number is not that of the labels or that are below 0, and
/// for a split without records.
std::shared_ptr<const BatchSource> labelled_texts(std::shared_ptr<const data::format::Dataset> split,
                                                  const LabelledOptions& options);

/// Class weights that give all labels of a split the same weight in a mean: records / (labels x records of the label),
/// as scikit-learn's "balanced". A label without records has the weight 0.
std::vector<double> balanced_weights(const data::format::Dataset& split);

struct MaskedOptions {
  std::int64_t length = 0;  ///< tokens of a row, special ones included
  double share = 0.15;      ///< of the tokens, which the model has to predict
  /// Default: the mask token of the data's tokenizer. A tokenizer without one can have the first id after its
  /// vocabulary.
  std::optional<std::uint32_t> mask = {};
  /// Ids that are never masked and never drawn, beside those that the data names: prefix, suffix, padding, begin and
  /// end of text. Such as the unknown token.
  std::vector<std::uint32_t> special = {};
};

/// Masked texts of a split of kind tokens, for the objective of BERT; see MaskingOptions. Documents are cut into pieces
/// that fit into a row with the tokenizer's special tokens around them, and a piece is a sample. Each epoch masks other
/// tokens of it. A piece's weight is its number of masked tokens, which may be 0.
///
/// Tensors: input_ids, attention_mask, token_type_ids, targets, masked. Throws base::UsageError naming the value and
/// the remedy for a length without room for a token, options out of range, a tokenizer without a mask token, and for a
/// split without a token.
std::shared_ptr<const BatchSource> masked_texts(std::shared_ptr<const data::format::Dataset> split,
                                                const MaskedOptions& options);

}  // namespace worker
