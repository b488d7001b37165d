#include "data/prepare/images/textures.h"

#include <array>
#include <cmath>
#include <cstdlib>

#include "data/prepare/images/painting.h"

namespace data::prepare {
namespace {

constexpr int kPeriod = 1'024;  // units that a pattern takes to repeat

constexpr std::array<const char*, 8> kLabels{"bricks", "checks", "columns", "dots", "grid", "rings", "rows", "waves"};

/// The place within a period, 0 to kPeriod - 1. `x` is at least 0.
int within(int x) {
  return x % kPeriod;
}

bool in_half(int x) {
  return within(x) < kPeriod / 2;
}

/// How far a wave is from its middle at x, which repeats after two periods.
int wave(int x) {
  const int place = x % (2 * kPeriod);
  return std::abs(place - kPeriod) * 700 / kPeriod;
}

bool bricks(int x, int y) {
  const int row = y / kPeriod;
  return within(y) < 256 || within(x + row % 2 * kPeriod / 2) < 200;
}

bool dot(int x, int y) {
  const int dx = within(x) - kPeriod / 2, dy = within(y) - kPeriod / 2;
  return dx * dx + dy * dy < 330 * 330;
}

/// Whether a point has the second color. All are in units; (x0, y0) is where rings have their middle.
bool is_second(int label, int x, int y, int x0, int y0) {
  switch (label) {
    case 0:
      return bricks(x, y);
    case 1:
      return in_half(x) != in_half(y);
    case 2:
      return in_half(x);
    case 3:
      return dot(x, y);
    case 4:
      return within(x) < 256 || within(y) < 256;
    case 5:
      return in_half(
          static_cast<int>(std::sqrt(static_cast<double>(x - x0) * (x - x0) + static_cast<double>(y - y0) * (y - y0))));
    case 6:
      return in_half(y);
    default:
      return in_half(y + wave(x));
  }
}

}  // namespace

std::vector<std::string> texture_labels() {
  return {kLabels.begin(), kLabels.end()};
}

Picture draw_texture(const GeneratedOptions& options, std::int64_t index) {
  Random random(options.seed, static_cast<std::uint64_t>(index));
  const int label = static_cast<int>(index % static_cast<std::int64_t>(kLabels.size()));
  const int size = options.size, side = size * kEighths;
  const int period = random.between(side * 15 / 100, side * 28 / 100);
  const int left = random.between(0, 2 * period), above = random.between(0, 2 * period);
  const int x0 = random.between(0, side) + left, y0 = random.between(0, side) + above;
  const Color first = draw_color(random), second = draw_unlike(first, random);
  const int noise = random.between(0, kMostNoise);
  const auto units = [period](int eighths) { return eighths * kPeriod / period; };
  const int rings_x = units(x0), rings_y = units(y0);
  return painted(size, noise, random, [&](int x, int y) {
    const int inside = points_inside(x, y, [&](int at_x, int at_y) {
      return is_second(label, units(at_x + left), units(at_y + above), rings_x, rings_y);
    });
    return mixed(second, inside, first);
  });
}

ImageSource open_textures(const GeneratedOptions& options) {
  return open_generated("textures", options, texture_labels(), draw_texture);
}

}  // namespace data::prepare
