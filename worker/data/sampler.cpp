#include "data/sampler.h"

#include <numeric>
#include <utility>

#include "data/splitmix.h"

namespace worker {
namespace {

/// splitmix64 gives the same stream on every platform and library version. std::shuffle does not promise that.
class Random {
 public:
  /// All streams walk the same sequence in equal strides. Without mixing, the streams of neighbouring seeds would
  /// overlap after a few strides.
  Random(std::uint64_t seed, std::uint64_t epoch) : state_(splitmix(splitmix(seed) + epoch)) {}

  /// Uniform in [0, bound), with a bias below bound / 2^64.
  std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
  }

 private:
  std::uint64_t next() { return splitmix(state_ += kSplitmixStride); }

  std::uint64_t state_;
};

}  // namespace

ShardedSampler::ShardedSampler(std::int64_t samples, std::uint64_t seed, int rank, int world_size)
    : samples_(samples), seed_(seed), rank_(rank), world_size_(world_size) {}

std::int64_t ShardedSampler::at(std::int64_t position) {
  const std::int64_t epoch = position / samples_;
  if (epoch != shuffled_epoch_) {
    order_.resize(static_cast<std::size_t>(samples_));
    std::iota(order_.begin(), order_.end(), std::int64_t{0});
    Random random(seed_, static_cast<std::uint64_t>(epoch));
    for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.below(i)]);
    shuffled_epoch_ = epoch;
  }
  return order_[static_cast<std::size_t>(position % samples_)];
}

std::vector<std::int64_t> ShardedSampler::take(std::int64_t count) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back(at(position_ + rank_ * count + i));
  position_ += count * world_size_;
  return out;
}

}  // namespace worker
