#include "data/prepare/images/scene.h"

#include <algorithm>
#include <cstdlib>

#include "data/prepare/images/painting.h"

namespace data::prepare {
namespace {

constexpr int kTurnScale = 1 << 14;  // of cosine and sine
constexpr int kTurnSteps = 64;       // tan(angle / 2) in steps of 1 / 64: 64 is 90 degrees
constexpr int kFewTurnSteps = 10;

/// Where the outline lies: lengths in eighths of a pixel.
struct Pose {
  int x, y, radius;
  std::int64_t cosine, sine;  // times kTurnScale
};

Pose draw_pose(Turn turn, int size, Random& random) {
  Pose pose{};
  const int side = size * kEighths;
  pose.radius = random.between(side * 22 / 100, side * 40 / 100);
  pose.x = random.between(pose.radius, side - pose.radius);
  pose.y = random.between(pose.radius, side - pose.radius);
  // Cosine and sine of an angle whose half has the tangent t / kTurnSteps are fractions of whole numbers.
  const int steps = turn == Turn::kAnyWay ? kTurnSteps : kFewTurnSteps;
  const std::int64_t t = random.between(-steps, steps);
  const std::int64_t square = kTurnSteps * kTurnSteps;
  pose.cosine = kTurnScale * (square - t * t) / (square + t * t);
  pose.sine = kTurnScale * 2 * kTurnSteps * t / (square + t * t);
  return pose;
}

struct Background {
  Color color, second;
  int kind;    // 0 plain, 1 gradient, 2 stripes, 3 checks
  int period;  // pixels
  int dx, dy;  // direction

  /// How much of the second color, of 256, is at a pixel.
  int share(int x, int y, int size) const {
    const int along = dx * x + dy * y;
    switch (kind) {
      case 1:
        return 256 * along / (std::max(dx + dy, 1) * size);
      case 2:
        return along / period % 2 == 0 ? 0 : 256;
      case 3:
        return (x / period + y / period) % 2 == 0 ? 0 : 256;
      default:
        return 0;
    }
  }
};

Background draw_background(int size, Random& random) {
  Background out{};
  out.color = draw_color(random);
  out.kind = random.between(0, 3);
  for (std::size_t c = 0; c < 3; ++c) out.second[c] = std::clamp(out.color[c] + random.between(-56, 56), 0, 255);
  out.period = random.between(2, std::max(2, size / 4));
  out.dx = random.between(0, 2);
  out.dy = random.between(out.dx == 0 ? 1 : 0, 2);
  return out;
}

/// How many of the points of a pixel lie in the outline.
int covered(Outline outline, int label, const Pose& pose, int column, int row) {
  return points_inside(column, row, [&](int at_x, int at_y) {
    const std::int64_t dx = at_x - pose.x, dy = at_y - pose.y;
    const std::int64_t scale = std::int64_t{pose.radius} * kTurnScale;
    const auto x = (dx * pose.cosine + dy * pose.sine) * kUnit / scale;
    const auto y = (dy * pose.cosine - dx * pose.sine) * kUnit / scale;
    return std::abs(x) <= kUnit && std::abs(y) <= kUnit && outline(label, static_cast<int>(x), static_cast<int>(y));
  });
}

}  // namespace

Picture draw_scene(Outline outline, int label, Turn turn, int size, Random random) {
  const auto pose = draw_pose(turn, size, random);
  const auto background = draw_background(size, random);
  const auto color = draw_unlike(background.color, random);
  const int noise = random.between(0, kMostNoise);
  return painted(size, noise, random, [&](int x, int y) {
    const int share = background.share(x, y, size);
    Color behind{};
    for (std::size_t c = 0; c < behind.size(); ++c)
      behind[c] = (background.color[c] * (256 - share) + background.second[c] * share) / 256;
    return mixed(color, covered(outline, label, pose, x, y), behind);
  });
}

}  // namespace data::prepare
