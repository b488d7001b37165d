#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "data/format/reader.h"
#include "data/order/packing.h"

namespace worker {

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
