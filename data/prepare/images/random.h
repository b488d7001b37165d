#pragma once

#include <cstdint>

#include "data/order/splitmix.h"

namespace data::prepare {

/// Random numbers that depend on (seed, index) alone, equal on every machine.
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t index)
      : state_(order::splitmix(seed + order::kSplitmixStride) ^ order::splitmix((index + 1) * order::kSplitmixStride)) {
  }

  std::uint64_t next() {
    state_ += order::kSplitmixStride;
    return order::splitmix(state_);
  }

  /// A whole number from `low` to `high`, both included.
  int between(int low, int high) {
    return low + static_cast<int>(next() % static_cast<std::uint64_t>(std::int64_t{high} - low + 1));
  }

 private:
  std::uint64_t state_;
};

}  // namespace data::prepare
