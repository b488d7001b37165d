#pragma once

#include <cstdint>
#include <vector>

namespace data::prepare {

/// A decoded image: RGB of 8 bits, rows from the top, without padding.
struct Picture {
  int height = 0;
  int width = 0;
  std::vector<std::uint8_t> rgb;  // [height, width, 3]

  bool operator==(const Picture&) const = default;
};

/// The picture made smaller so that its shorter side is `shorter_side` pixels. The longer side keeps the proportion,
/// rounded to the nearest pixel. A picture whose shorter side is not longer than that is returned as it is.
///
/// Each pixel is the mean of the area that it covers, so fine patterns do not alias. The arithmetic is in whole
/// numbers: equal pictures give equal bytes on every machine. Sides are at most kMostSide. Throws std::invalid_argument
/// if `shorter_side` is below 1.
Picture shrink(Picture picture, int shorter_side);

/// The longest side of a picture, in pixels.
inline constexpr int kMostSide = 16'384;

}  // namespace data::prepare
