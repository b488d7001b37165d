#pragma once

#include <cstdint>

namespace data::order {

/// The target of a token that counts for nothing, in batches and in losses. transformers and PyTorch have the same.
inline constexpr std::int64_t kNoTarget = -100;

}  // namespace data::order
