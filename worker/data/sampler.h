#pragma once

#include <cstdint>
#include <vector>

namespace worker {

/// An endless shuffled sequence of samples dealt out to the ranks. Every epoch is a fresh permutation by (seed, epoch);
/// over all ranks each sample comes exactly once an epoch, and an epoch may end inside a batch. The global sequence
/// depends on nothing but (samples, seed), so the total batch number k holds the same samples at every world size, and
/// its state is one number.
class ShardedSampler {
 public:
  /// The number of the rule by which (samples, seed) give an order, saved with positions: under another rule a position
  /// means other samples. Raise it with every change of the order.
  static constexpr std::int64_t kOrder = 2;

  /// `samples` of at least 1; `rank` in [0, world_size).
  ShardedSampler(std::int64_t samples, std::uint64_t seed, int rank, int world_size);

  /// This rank's next `count` samples, each in [0, samples). All ranks must take the same counts in the same order.
  std::vector<std::int64_t> take(std::int64_t count);

  /// Samples dealt out so far, over all ranks: the state to save.
  std::int64_t position() const { return position_; }
  std::int64_t epoch() const { return position_ / samples_; }
  /// Goes on from a saved position (of at least 0), at any world size.
  void seek(std::int64_t position) { position_ = position; }

 private:
  std::int64_t at(std::int64_t position);

  std::int64_t samples_;
  std::uint64_t seed_;
  int rank_, world_size_;
  std::int64_t position_ = 0;
  std::int64_t shuffled_epoch_ = -1;
  std::vector<std::int64_t> order_;
};

}  // namespace worker
