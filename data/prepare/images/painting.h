#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "data/prepare/images/colors.h"
#include "data/prepare/images/picture.h"

namespace data::prepare {

/// Places are in eighths of a pixel, so that the points of a pixel lie between its borders.
inline constexpr int kEighths = 8;
inline constexpr int kPointsASide = 4;  // of a pixel
inline constexpr int kPoints = kPointsASide * kPointsASide;
/// The most that noise changes a channel of a generated image.
inline constexpr int kMostNoise = 24;

/// For how many points of a pixel `is_inside(x, y)` holds. Edges that are drawn by this share are smooth.
template <class IsInside>
int points_inside(int column, int row, const IsInside& is_inside) {
  int count = 0;
  for (int j = 0; j < kPointsASide; ++j) {
    for (int i = 0; i < kPointsASide; ++i)
      count += is_inside(column * kEighths + 2 * i + 1, row * kEighths + 2 * j + 1) ? 1 : 0;
  }
  return count;
}

/// `inside` of kPoints of the first color, and the rest of the second one.
inline Color mixed(const Color& first, int inside, const Color& second) {
  Color out{};
  for (std::size_t c = 0; c < out.size(); ++c) out[c] = (first[c] * inside + second[c] * (kPoints - inside)) / kPoints;
  return out;
}

/// A square picture whose pixels have the colors of `color_at(x, y)` and noise of at most `noise`.
template <class ColorAt>
Picture painted(int size, int noise, Random& random, const ColorAt& color_at) {
  Picture out{size, size, {}};
  out.rgb.reserve(std::size_t{3} * static_cast<std::size_t>(size) * static_cast<std::size_t>(size));
  for (int y = 0; y < size; ++y) {
    for (int x = 0; x < size; ++x) {
      for (const int clean : color_at(x, y))
        out.rgb.push_back(static_cast<std::uint8_t>(std::clamp(clean + random.between(-noise, noise), 0, 255)));
    }
  }
  return out;
}

}  // namespace data::prepare
