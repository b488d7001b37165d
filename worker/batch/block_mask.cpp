#include "worker/batch/block_mask.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace worker {
namespace {

constexpr double kFlattest = 0.3;  // height / width; the steepest is its inverse
constexpr int kTries = 10;

/// Masks one rectangle that adds at least 1 and at most `most` patches. Returns how many it added; 0: none was found.
std::int64_t add_block(std::vector<std::uint8_t>& mask, std::int64_t rows, std::int64_t columns, std::int64_t most,
                       data::order::Random& random) {
  for (int i = 0; i < kTries; ++i) {
    const double area = random.between(kLeastBlock, static_cast<double>(most));
    const double ratio = std::exp(random.between(std::log(kFlattest), -std::log(kFlattest)));
    const auto height = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area * ratio)));
    const auto width = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area / ratio)));
    if (height < 1 || width < 1 || height >= rows || width >= columns) continue;
    const auto top = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(rows - height + 1)));
    const auto left = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(columns - width + 1)));
    const auto each_row = [&](auto what) {
      for (std::int64_t row = top; row < top + height; ++row) {
        const auto begin = mask.begin() + static_cast<std::ptrdiff_t>(row * columns + left);
        what(begin, begin + static_cast<std::ptrdiff_t>(width));
      }
    };
    std::int64_t added = 0;
    each_row([&](auto begin, auto end) { added += std::count(begin, end, std::uint8_t{0}); });
    if (added < 1 || added > most) continue;
    each_row([](auto begin, auto end) { std::fill(begin, end, std::uint8_t{1}); });
    return added;
  }
  return 0;
}

}  // namespace

std::vector<std::uint8_t> block_mask(std::int64_t rows, std::int64_t columns, std::int64_t count,
                                     data::order::Random& random) {
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(rows * columns), 0);
  // A block of DINOv2 has at most half of the patches.
  const std::int64_t largest = std::max<std::int64_t>(rows * columns / 2, 1);
  for (std::int64_t masked = 0; masked < count;) {
    const std::int64_t added = add_block(mask, rows, columns, std::min(count - masked, largest), random);
    if (added == 0) break;
    masked += added;
  }
  return mask;
}

}  // namespace worker
