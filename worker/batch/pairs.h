#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/format/reader.h"
#include "worker/batch/padding.h"
#include "worker/batch/source.h"

namespace worker {

struct PairOptions {
  std::int64_t input_length = 0, target_length = 0;  ///< tokens, special ones included; longer texts are cut
};

/// Inputs and targets of a split of kind pairs, for an encoder-decoder. A record is a sample. The tokenizer's special
/// tokens are around both texts, and the end-of-text token, if the tokenizer has one, is a target's last. A text that
/// is too long loses its last tokens, but never its suffix, such as </s>. A pair's weight is the number of its target's
/// tokens.
///
/// Tensors: input_ids, attention_mask, targets. Throws base::UsageError naming key, value and remedy for a length
/// without room for a token, and for a split without records.
std::shared_ptr<const BatchSource> pairs_of(std::shared_ptr<const data::format::Dataset> split,
                                            const PairOptions& options);

/// The batch of these inputs and targets, padded: the inputs with `pad`, the targets with kNoTarget. The lengths are
/// the longest that a row may have.
Batch pair_batch(const TokenRows& inputs, const TokenRows& targets, std::int64_t pad, const PairOptions& options);

}  // namespace worker
