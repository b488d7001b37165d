#include "data/order/packing.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "data/order/order.h"

namespace data::order {
namespace {

/// Rows while they are filled.
class Packer {
 public:
  explicit Packer(std::int64_t length) : length_(length) {}

  void add(const Piece& piece) {
    if (piece.length == length_) {  // needs no room, so it closes no other row
      rows_.emplace_back().pieces.push_back(piece);
      return;
    }
    auto open = std::find_if(open_.begin(), open_.end(), [&](const Open& one) { return one.room >= piece.length; });
    if (open == open_.end()) {
      if (open_.size() == kOpenRows) open_.erase(open_.begin());
      open = open_.insert(open_.end(), {rows_.size(), length_});
      rows_.emplace_back();
    }
    rows_[open->row].pieces.push_back(piece);
    open->room -= piece.length;
    if (open->room == 0) open_.erase(open);
  }

  std::vector<PackedRow> take_rows() { return std::move(rows_); }

 private:
  struct Open {
    std::size_t row;
    std::int64_t room;  // tokens
  };

  std::int64_t length_;
  std::vector<PackedRow> rows_;
  std::vector<Open> open_;  // the oldest first
};

void check_packing(std::span<const std::int32_t> lengths, std::int64_t length) {
  if (length < 1) {
    throw std::invalid_argument("packing: rows of " + std::to_string(length) + " tokens; a row needs at least 1");
  }
  const auto negative = std::find_if(lengths.begin(), lengths.end(), [](std::int32_t one) { return one < 0; });
  if (negative == lengths.end()) return;
  throw std::invalid_argument("packing: record " + std::to_string(negative - lengths.begin()) + " has a length of " +
                              std::to_string(*negative) + " tokens; it must be at least 0");
}

}  // namespace

std::vector<PackedRow> pack(std::uint64_t seed, std::span<const std::int32_t> lengths, std::int64_t length) {
  check_packing(lengths, length);
  if (lengths.empty()) return {};
  const auto records = static_cast<std::int64_t>(lengths.size());
  Order order({.samples = records, .seed = seed});
  Packer packer(length);
  for (std::int64_t position = 0; position < records; ++position) {
    const auto record = order.at(position);
    const std::int64_t tokens = lengths[static_cast<std::size_t>(record)];
    for (std::int64_t begin = 0; begin < tokens; begin += length) {
      packer.add({record, begin, std::min(length, tokens - begin)});
    }
  }
  return packer.take_rows();
}

}  // namespace data::order
