#pragma once

#include <cstdint>
#include <memory>

#include "data/format/reader.h"
#include "worker/batch/source.h"

namespace worker {

/// The longest rows of packed documents. The mask of a row takes length x length bytes: 256 MiB here.
inline constexpr std::int64_t kLongestPackedRow = 16'384;

/// The documents of a split of kind tokens, packed into rows of at most `length` tokens; see pack(). A row is a sample.
///
/// The tokenizer's special tokens are around each document, and the end-of-text token, if there is one, ends it. A
/// token's target is the next token of its document. The last token of a document has none. A document that is longer
/// than a row is cut, and the last token of a piece then has the first one of the next piece as its target. Positions
/// begin at 0 in each piece. A row's weight is its number of targets.
///
/// Tensors: input_ids, targets, segment_ids, position_ids. Padding has the tokenizer's padding token, or 0.
///
/// `seed` decides which documents share a row. Memory: 24 bytes a document and 24 a row. Throws base::UsageError naming
/// key, value and remedy for a length outside [1, kLongestPackedRow], and for a split without a token.
std::shared_ptr<const BatchSource> packed_documents(std::shared_ptr<const data::format::Dataset> split,
                                                    std::int64_t length, std::uint64_t seed);

}  // namespace worker
