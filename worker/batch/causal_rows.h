#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/format/dataset.h"
#include "worker/batch/batch.h"

namespace worker {

/// All tokens of a text, one after another. Thread-safe.
class TokenStream {
 public:
  virtual ~TokenStream() = default;
  virtual std::int64_t size() const = 0;
  /// Copies the tokens [begin, begin + count), which must be there, to `count` places.
  virtual void copy(std::int64_t begin, std::int64_t count, std::int64_t* out) const = 0;
};

/// The records of a split of kind tokens, in their order. The tokenizer's special tokens are around each, and the
/// end-of-text token, if there is one, follows it. Memory: 8 bytes a record.
std::shared_ptr<const TokenStream> stream_of(std::shared_ptr<const data::format::Dataset> split);

/// Rows [first, first + rows) of a stream that is cut every `length` tokens. A row's targets are its tokens shifted by
/// one, so the last target is the first token of the next row.
/// Tensors: input_ids and targets. A row's weight is `length`.
std::shared_ptr<const BatchSource> rows_of(std::shared_ptr<const TokenStream> stream, std::int64_t length,
                                           std::int64_t first, std::int64_t rows);

/// All rows of a stream. Throws base::UsageError with `what`, such as "the split train of /data/pages", when the stream
/// has no whole row.
std::shared_ptr<const BatchSource> all_rows_of(std::shared_ptr<const TokenStream> stream, std::int64_t length,
                                               const std::string& what);

/// A stream whose last rows are for validation.
struct SplitRows {
  std::shared_ptr<const BatchSource> train;
  std::shared_ptr<const BatchSource> validation;  ///< null for a fraction of 0
};

/// Splits a stream without a validation split of its own. Validation has `validation_fraction` of the rows, rounded
/// down, but at least one for a fraction above 0. Throws base::UsageError naming key, value and remedy when no row is
/// left for training.
SplitRows split_rows(const std::shared_ptr<const TokenStream>& stream, std::int64_t length, double validation_fraction);

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
