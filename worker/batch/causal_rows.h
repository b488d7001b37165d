#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/format/dataset.h"
#include "worker/batch/batch.h"
#include "worker/batch/document.h"

namespace worker {

/// All tokens of a split of kind tokens, one record after another. The tokenizer's special tokens are around each
/// record, and the end-of-text token, if there is one, follows it. Memory: 8 bytes a record. Thread-safe.
class TokenStream {
 public:
  explicit TokenStream(std::shared_ptr<const data::format::Dataset> split);

  std::int64_t size() const { return starts_.back(); }
  /// Copies the tokens [begin, begin + count), which must be there, to `count` places.
  void copy(std::int64_t begin, std::int64_t count, std::int64_t* out) const;

 private:
  const std::shared_ptr<const data::format::Dataset> split_;
  const Frame frame_;
  std::vector<std::int64_t> starts_{0};  // in the stream, by record; the last: the stream's size
};

// A stream is cut every `length` tokens into rows, which are samples of weight `length`. A row's targets are its tokens
// shifted by one, so the last target is the first token of the next row. Tensors: input_ids and targets.

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

/// The documents of a split of kind tokens, packed into rows of at most `length` tokens; see pack(). A row is a sample.
///
/// The tokenizer's special tokens are around each document, and the end-of-text token, if there is one, ends it. A
/// token's target is the next token of its document. The last token of a document has none. A document that is longer
/// than a row is cut, and the last token of a piece then has the first one of the next piece as its target. Positions
/// begin at 0 in each piece. A row's weight is its number of targets.
///
/// Tensors: input_ids, targets, position_ids, document_starts; and document_lengths. Padding has the tokenizer's
/// padding token, or 0.
///
/// `seed` decides which documents share a row. Memory: 24 bytes a document and 24 a row. Throws base::UsageError naming
/// key, value and remedy for a length below 1, and for a split without a token.
std::shared_ptr<const BatchSource> packed_documents(std::shared_ptr<const data::format::Dataset> split,
                                                    std::int64_t length, std::uint64_t seed);

}  // namespace worker
