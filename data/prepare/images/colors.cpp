#include "data/prepare/images/colors.h"

#include <cstdlib>

namespace data::prepare {
namespace {

constexpr int kLeastContrast = 160;  // sum over the three channels of the distance of two colors

int distance(const Color& a, const Color& b) {
  return std::abs(a[0] - b[0]) + std::abs(a[1] - b[1]) + std::abs(a[2] - b[2]);
}

}  // namespace

Color draw_color(Random& random) {
  return {random.between(0, 255), random.between(0, 255), random.between(0, 255)};
}

Color draw_unlike(const Color& other, Random& random) {
  for (int tries = 0; tries < 16; ++tries) {
    const auto color = draw_color(random);
    if (distance(color, other) >= kLeastContrast) return color;
  }
  return {other[0] < 128 ? 255 : 0, other[1] < 128 ? 255 : 0, other[2] < 128 ? 255 : 0};
}

}  // namespace data::prepare
