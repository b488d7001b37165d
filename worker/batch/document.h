#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/format/dataset.h"
#include "data/format/format.h"
#include "data/order/order.h"

namespace worker {

/// The special tokens around the tokens of a record. Prepared files hold records without them.
struct Frame {
  std::vector<std::int64_t> prefix, suffix;

  std::int64_t size() const { return static_cast<std::int64_t>(prefix.size() + suffix.size()); }
};

/// Special tokens that the tokenizer puts around a text, such as BERT's [CLS] and [SEP] or T5's </s>.
Frame frame_of(const data::format::Description& description);

/// Returns the same frame, with the end-of-text token last, if the tokenizer has one: the border between two documents.
Frame document_frame_of(const data::format::Description& description);

/// The tokens of a record with its frame. A view of both.
class Document {
 public:
  Document(const Frame& frame, const data::format::Ids& ids) : frame_(frame), ids_(ids) {}

  std::int64_t size() const { return frame_.size() + ids_.size; }
  /// `place` is in [0, size()).
  std::int64_t operator[](std::int64_t place) const;
  /// Copies the tokens [begin, begin + count), which must be there, to `count` places.
  void copy(std::int64_t begin, std::int64_t count, std::int64_t* out) const;

 private:
  const Frame& frame_;
  const data::format::Ids ids_;
};

/// The frame with the tokens [begin, begin + count) of a field inside. The suffix is always there, however long the
/// field is.
std::vector<std::int64_t> framed(const Frame& frame, const data::format::Ids& ids, std::int64_t begin,
                                 std::int64_t count);

/// The most tokens of a record that fit with their frame into `length` tokens. Throws base::UsageError naming `key`,
/// its value `length` and the remedy if there is no room for one.
std::int64_t room_in(std::int64_t length, const Frame& frame, const char* key);

/// The documents of a split of kind tokens, cut into pieces of at most so many tokens. Pieces are numbered in the order
/// of the documents. A document without tokens has none. Memory: 8 bytes a document. Thread-safe.
class Pieces {
 public:
  /// `most` is at least 1. Throws base::UsageError for a split without a token.
  Pieces(std::shared_ptr<const data::format::Dataset> split, std::int64_t most);

  std::int64_t size() const { return first_.back(); }
  /// Throws std::out_of_range for a piece that is not there.
  data::order::Piece at(std::int64_t number) const;
  /// The piece's document.
  data::format::Ids ids(const data::order::Piece& piece) const { return split_->ids(piece.record, 0); }
  const data::format::Description& description() const { return split_->description(); }

 private:
  std::shared_ptr<const data::format::Dataset> split_;
  std::int64_t most_;
  std::vector<std::int64_t> first_{0};  // number of each document's first piece; the last: all pieces
};

}  // namespace worker
