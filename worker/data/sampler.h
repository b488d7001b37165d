#pragma once

#include <cstdint>
#include <vector>

namespace worker {

/// An endless shuffled sequence of samples, dealt out to the ranks. The permutation of an epoch depends only on (seed,
/// epoch). In an epoch each sample comes exactly once over all ranks. An epoch may end inside a batch. The global
/// sequence depends only on (samples, seed), so total batch k holds the same samples at every world size. The sampler's
/// state is one number.
class ShardedSampler {
 public:
  /// The number of the rule that turns (samples, seed) into an order. Checkpoints save it with the position, because
  /// the same position means other samples under another rule. Raise the number with every change of the order.
  static constexpr std::int64_t kOrder = 2;

  /// `samples` is at least 1; `rank` is in [0, world_size).
  ShardedSampler(std::int64_t samples, std::uint64_t seed, int rank, int world_size);

  /// This rank's next `count` samples, each in [0, samples). All ranks must take the same counts in the same order.
  std::vector<std::int64_t> take(std::int64_t count);

  /// The number of samples dealt out so far, over all ranks. Save this number as the state.
  std::int64_t position() const { return position_; }
  std::int64_t epoch() const { return position_ / samples_; }
  /// Continues from a saved position (at least 0), at any world size.
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
