#pragma once

#include <cstdint>
#include <vector>

#include "data/order/random.h"

namespace worker {

/// Blockwise masking of BEiT (Bao et al., arXiv 2106.08254, algorithm 1), as DINOv2 has it: rectangles of at least
/// kLeastBlock patches, with sides in a ratio from 0.3 to 1 / 0.3, are masked until `count` patches are. The last ones
/// may be smaller, and it gives up where none fits after ten tries. So between 0 and `count` patches are masked, most
/// often all. The result has rows x columns places, row by row: 1 is masked. Depends on the arguments alone.
std::vector<std::uint8_t> block_mask(std::int64_t rows, std::int64_t columns, std::int64_t count,
                                     data::order::Random& random);

inline constexpr std::int64_t kLeastBlock = 4;

}  // namespace worker
