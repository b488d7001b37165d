#pragma once

#include <cstdint>
#include <span>

#include "data/order/splitmix.h"
#include "worker/batch/batch.h"

namespace worker {

/// The samples of a split, and how they become batches. Thread-safe: the threads of a Loader call collate() at the same
/// time. A source has no state that changes.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  /// Samples of an epoch, at least 1.
  virtual std::int64_t samples() const = 0;

  /// How long a sample in [0, samples()) is, in tokens. Never changes. For an Order with buckets.
  virtual std::int32_t length(std::int64_t /*sample*/) const { return 1; }

  /// The batch of these samples, in this order. `draws` has the seed of what is random about each; see sample_draw().
  /// The batch depends on both arguments only. Throws std::out_of_range for a sample that is not there.
  virtual Batch collate(std::span<const std::int64_t> samples, std::span<const std::uint64_t> draws) const = 0;
};

/// The seed of what is random about a sample in an epoch: masks, spans, crops. The seed knows no rank and no place in
/// the batch, so batches are equal at every world size.
constexpr std::uint64_t sample_draw(std::uint64_t seed, std::int64_t epoch, std::int64_t sample) {
  const auto of_epoch = data::order::splitmix(data::order::splitmix(seed) +
                                              static_cast<std::uint64_t>(epoch) * data::order::kSplitmixStride);
  return data::order::splitmix(of_epoch + static_cast<std::uint64_t>(sample));
}

}  // namespace worker
