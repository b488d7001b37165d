#pragma once

#include <cstdint>
#include <vector>

#include "data/order.h"

namespace worker {

/// The endless sequence of an Order, dealt out to the ranks. In an epoch each sample comes exactly once over all ranks.
/// An epoch may end inside a batch. The order knows no ranks, so total batch k holds the same samples at every world
/// size. The sampler's state is one number.
class ShardedSampler {
 public:
  /// The rule of an order without buckets, which checkpoints save.
  static constexpr std::int64_t kOrder = Order::kShuffled;

  /// A shuffled order without buckets. `samples` is at least 1; `rank` is in [0, world_size).
  ShardedSampler(std::int64_t samples, std::uint64_t seed, int rank, int world_size);
  ShardedSampler(Order order, int rank, int world_size);

  /// This rank's next `count` samples, each in [0, samples). All ranks must take the same counts in the same order.
  std::vector<std::int64_t> take(std::int64_t count);

  /// The number of samples dealt out so far, over all ranks. Save this number as the state.
  std::int64_t position() const { return position_; }
  std::int64_t epoch() const { return order_.epoch(position_); }
  /// Continues from a saved position (at least 0), at any world size.
  void seek(std::int64_t position) { position_ = position; }

 private:
  Order order_;
  int rank_, world_size_;
  std::int64_t position_ = 0;
};

}  // namespace worker
