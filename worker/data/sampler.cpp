#include "data/sampler.h"

#include <utility>

namespace worker {

ShardedSampler::ShardedSampler(std::int64_t samples, std::uint64_t seed, int rank, int world_size)
    : ShardedSampler(Order({.samples = samples, .seed = seed}), rank, world_size) {}

ShardedSampler::ShardedSampler(Order order, int rank, int world_size)
    : order_(std::move(order)), rank_(rank), world_size_(world_size) {}

std::vector<std::int64_t> ShardedSampler::take(std::int64_t count) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back(order_.at(position_ + rank_ * count + i));
  position_ += count * world_size_;
  return out;
}

}  // namespace worker
