#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "data/format/dataset.h"
#include "data/order/masking.h"
#include "worker/batch/batch.h"

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

/// Span corruption of the documents of a split of kind tokens, for an encoder-decoder; see SpanOptions. Documents are
/// cut into pieces whose inputs and targets have at most the lengths of `sizes`, and a piece is a sample. The
/// tokenizer's end-of-text token ends input and target; spans.eos is ignored. Each epoch cuts other spans out of a
/// piece. A piece's weight is the number of its target's tokens.
///
/// Tensors: input_ids, attention_mask, targets. Throws base::UsageError naming the value and the remedy for lengths
/// without room for a text, options out of range, sentinels outside the vocabulary, and for a split without a token.
std::shared_ptr<const BatchSource> corrupted_spans(std::shared_ptr<const data::format::Dataset> split,
                                                   const data::order::SpanOptions& spans, const PairOptions& sizes);

struct PromptOptions {
  std::int64_t samples = 64;  ///< the first records of the split, or all if it has fewer
  std::int64_t most = 0;      ///< tokens of a prompt, special ones included; longer ones lose their last tokens
  /// Splits of kind tokens: how many of a record's tokens belong to its prompt, 0 to all of them. The rest is what a
  /// model is asked for. `ids` is without special tokens. Missing: half of them.
  std::function<std::int64_t(std::int64_t record, std::span<const std::uint32_t> ids)> cut = {};
};

/// A text to continue, or to answer.
struct Prompt {
  std::int64_t record = 0;
  std::vector<std::int64_t> ids;   ///< what the model reads: at least one token
  std::vector<std::int64_t> rest;  ///< what the data has after it, without special tokens
  bool counts = true;              ///< false: filling, whose answer is thrown away
};

/// The prompts of this rank at an evaluation. All ranks get equally many, because each call of a sharded model is
/// collective: ranks without a record left get the first one again, which does not count. Rank r has the records r,
/// r + world_size, and so on. Empty if the split has no records.
///
/// Kind tokens: the tokenizer's prefix and the first tokens of a record. A prompt that would be empty is the
/// end-of-text token, which is what comes before a document in training, or token 0. Kind pairs: the input with prefix
/// and suffix; `rest` is the target. Throws base::UsageError naming the value and the remedy for `most` without room
/// for a token, and std::logic_error for other kinds.
std::vector<Prompt> prompts_of(const data::format::Dataset& split, int rank, int world_size,
                               const PromptOptions& options);

}  // namespace worker
