#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "data/format/dataset.h"
#include "worker/batch/batch.h"

namespace worker {

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
