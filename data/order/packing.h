#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace data::order {

/// The target of a token that counts for nothing, in batches and in losses. transformers and PyTorch have the same.
inline constexpr std::int64_t kNoTarget = -100;

/// Tokens [begin, begin + length) of a record.
struct Piece {
  std::int64_t record = 0, begin = 0, length = 0;

  bool operator==(const Piece&) const = default;
};

/// The pieces of one row, one after the other from its first token on. A row is as long as they are together.
struct PackedRow {
  std::vector<Piece> pieces;

  bool operator==(const PackedRow&) const = default;
};

/// Rows that a piece may still join. More of them fill rows better and cost time.
inline constexpr std::size_t kOpenRows = 64;

/// Puts documents together into rows of at most `length` tokens, so that little of a batch is padding.
///
/// The documents come in the order of a shuffled epoch 0 of `seed`. A document longer than `length` is cut into pieces
/// of `length` and a rest. A piece goes into the first of the open rows that has room, or into a new row. At more than
/// kOpenRows open rows the oldest one is closed. Every token is in exactly one piece. Records without a token are in no
/// row.
///
/// `lengths`: tokens by record. The result depends on the arguments only. Time: at most kOpenRows steps a piece.
/// Throws std::invalid_argument for a length below 1, and for a record whose length is negative, naming it.
std::vector<PackedRow> pack(std::uint64_t seed, std::span<const std::int32_t> lengths, std::int64_t length);

}  // namespace data::order
