#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "data/prepare/images/picture.h"

namespace data::prepare {
namespace {

/// Part of a line of `from` pixels that becomes `to` pixels. In units of 1 / (from x to) of the line, an old pixel is
/// `to` long and a new one is `from` long, so each overlap is a whole number.
struct Overlap {
  int pixel;  // the new one
  std::uint32_t length;
};

/// The new pixels that old pixel `at` overlaps: one or two, because `to` is not more than `from`.
std::pair<Overlap, Overlap> overlaps(int at, int from, int to) {
  const std::int64_t begin = std::int64_t{at} * to;
  const int first = static_cast<int>(begin / from);
  const std::int64_t border = std::int64_t{first + 1} * from;
  const std::int64_t inside = std::min<std::int64_t>(to, border - begin);
  return {{first, static_cast<std::uint32_t>(inside)},
          {std::min(first + 1, to - 1), static_cast<std::uint32_t>(to - inside)}};
}

/// One row of `from` pixels as sums over `to` pixels: value x overlap, at most 255 x kMostSide.
void shrink_row(const std::uint8_t* row, int from, int to, std::vector<std::uint32_t>& out) {
  std::fill(out.begin(), out.end(), 0);
  for (int x = 0; x < from; ++x) {
    const auto [first, second] = overlaps(x, from, to);
    for (int c = 0; c < 3; ++c) {
      const std::uint32_t value = row[3 * x + c];
      out[3 * first.pixel + c] += value * first.length;
      out[3 * second.pixel + c] += value * second.length;
    }
  }
}

}  // namespace

Picture shrink(Picture picture, int shorter_side) {
  if (shorter_side < 1) {
    throw std::invalid_argument("shorter side = " + std::to_string(shorter_side) + ": want at least 1 pixel");
  }
  const int shorter = std::min(picture.height, picture.width);
  if (shorter <= shorter_side) return picture;
  const auto scaled = [&](int side) {
    return static_cast<int>((2 * std::int64_t{side} * shorter_side + shorter) / (2 * std::int64_t{shorter}));
  };
  Picture out{scaled(picture.height), scaled(picture.width), {}};
  const std::size_t row_values = std::size_t{3} * static_cast<std::size_t>(out.width);
  out.rgb.resize(row_values * static_cast<std::size_t>(out.height));
  const auto area = static_cast<std::uint64_t>(picture.height) * static_cast<std::uint64_t>(picture.width);
  std::vector<std::uint32_t> row(row_values);
  std::vector<std::uint64_t> sums(row_values), next(row_values);
  for (int y = 0; y < picture.height; ++y) {
    shrink_row(picture.rgb.data() + std::size_t{3} * static_cast<std::size_t>(picture.width) * y, picture.width,
               out.width, row);
    const auto [first, second] = overlaps(y, picture.height, out.height);
    for (std::size_t i = 0; i < row_values; ++i) {
      sums[i] += std::uint64_t{row[i]} * first.length;
      next[i] += std::uint64_t{row[i]} * second.length;
    }
    const bool ends = std::int64_t{y + 1} * out.height >= std::int64_t{first.pixel + 1} * picture.height;
    if (!ends) continue;
    for (std::size_t i = 0; i < row_values; ++i) {
      out.rgb[row_values * static_cast<std::size_t>(first.pixel) + i] =
          static_cast<std::uint8_t>((sums[i] + area / 2) / area);
    }
    sums.swap(next);
    std::fill(next.begin(), next.end(), 0);
  }
  return out;
}

}  // namespace data::prepare
