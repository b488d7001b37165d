#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "data/format/reader.h"

namespace worker {

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
