#pragma once

#include <cstdint>

#include "data/order/splitmix.h"

namespace worker {

/// The seed of the random numbers that one rank draws in one step, such as dropout's masks. Each rank draws its own,
/// and a resumed run draws those of an uninterrupted one, at any world size.
constexpr std::uint64_t step_seed(std::int64_t seed, std::int64_t step, int rank) {
  const auto of_step =
      data::order::splitmix(data::order::splitmix(static_cast<std::uint64_t>(seed)) + static_cast<std::uint64_t>(step));
  return data::order::splitmix(of_step + static_cast<std::uint64_t>(rank) * data::order::kSplitmixStride);
}

}  // namespace worker
