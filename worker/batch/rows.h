#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/format/reader.h"
#include "worker/batch/source.h"

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

}  // namespace worker
