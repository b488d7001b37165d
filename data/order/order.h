#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "data/order/random.h"

namespace data::order {

struct OrderOptions {
  std::int64_t samples = 1;  ///< samples of an epoch, at least 1
  std::uint64_t seed = 0;
  bool shuffle = true;              ///< false: every epoch begins as 0, 1, 2, ...
  std::int64_t batch_size = 0;      ///< samples of a total batch, over all ranks; used with buckets only
  std::int64_t bucket_batches = 0;  ///< total batches of a bucket; 0: no buckets
  /// The length of a sample in [0, samples), in tokens; needed with buckets. A sample's length never changes.
  std::function<std::int32_t(std::int64_t sample)> length = {};
};

/// An endless sequence of samples. Each epoch is a permutation of all samples. The permutation depends on the options
/// and the number of the epoch, never on ranks, so a training goes on at any position and at any world size.
///
/// Buckets keep padding low. Without them a batch mixes short and long samples, and all are padded to the longest. The
/// shuffled epoch is cut into buckets of bucket_batches total batches. Each bucket is sorted by length and cut into
/// total batches, and these come in random order. The cuts are where total batches begin: at the multiples of
/// batch_size among all positions. So the total batch that spans two epochs is the only one that mixes lengths.
///
/// Memory: 8 bytes a sample. Each change of the epoch makes the permutation anew. Not thread-safe.
class Order {
 public:
  /// The number of the rule that turns options into an order. Checkpoints save it with the position, because the same
  /// position means other samples under another rule. Raise a number with every change of its order. With buckets a
  /// checkpoint also needs batch_size and bucket_batches, because they change the order.
  static constexpr std::int64_t kShuffled = 2, kBucketed = 3;

  /// Throws std::invalid_argument naming the option, its value and what it must be.
  explicit Order(OrderOptions options);

  /// The sample at this position of the sequence, at least 0.
  std::int64_t at(std::int64_t position);

  /// The number of the epoch that this position is in, from 0.
  std::int64_t epoch(std::int64_t position) const { return position / options_.samples; }

  /// kShuffled or kBucketed.
  std::int64_t rule() const { return options_.bucket_batches > 0 ? kBucketed : kShuffled; }

  const OrderOptions& options() const { return options_; }

 private:
  void make(std::int64_t epoch);
  void sort_into_buckets(std::int64_t epoch, Random& random);
  void sort_bucket(std::int64_t begin, std::int64_t end, Random& random);

  OrderOptions options_;
  std::int64_t made_ = -1;           // the epoch whose permutation is in order_
  std::vector<std::int64_t> order_;  // samples by place in the epoch
};

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
