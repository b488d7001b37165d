#include "data/prepare/images/image_source.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "data/order/random.h"

namespace data::prepare {
namespace {

/// Random numbers that depend on (seed, index) alone, equal on every machine.
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t index)
      : state_(order::splitmix(seed + order::kSplitmixStride) ^ order::splitmix((index + 1) * order::kSplitmixStride)) {
  }

  std::uint64_t next() {
    state_ += order::kSplitmixStride;
    return order::splitmix(state_);
  }

  /// A whole number from `low` to `high`, both included.
  int between(int low, int high) {
    return low + static_cast<int>(next() % static_cast<std::uint64_t>(std::int64_t{high} - low + 1));
  }

 private:
  std::uint64_t state_;
};

/// Red, green and blue, each 0 to 255.
using Color = std::array<int, 3>;

/// Places are in eighths of a pixel, so that the points of a pixel lie between its borders.
constexpr int kEighths = 8;
constexpr int kPointsASide = 4;  // of a pixel
constexpr int kPoints = kPointsASide * kPointsASide;
/// The most that noise changes a channel of a generated image.
constexpr int kMostNoise = 24;

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
Color mixed(const Color& first, int inside, const Color& second) {
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

/// The half side of the square in which an outline is described: from -kUnit to kUnit, y downwards.
constexpr int kUnit = 1'024;

/// A function that tells whether a point belongs to the outline of this class. Pure.
using Outline = bool (*)(int label, int x, int y);

/// How much the outline may turn.
enum class Turn : std::uint8_t { kAnyWay, kLittle };  // 90 degrees to either side, about 18 degrees

constexpr int kLeastContrast = 160;  // sum over the three channels of the distance of two colors

int distance(const Color& a, const Color& b) {
  return std::abs(a[0] - b[0]) + std::abs(a[1] - b[1]) + std::abs(a[2] - b[2]);
}

Color draw_color(Random& random) {
  return {random.between(0, 255), random.between(0, 255), random.between(0, 255)};
}

/// A color that can be told from `other`.
Color draw_unlike(const Color& other, Random& random) {
  for (int tries = 0; tries < 16; ++tries) {
    const auto color = draw_color(random);
    if (distance(color, other) >= kLeastContrast) return color;
  }
  return {other[0] < 128 ? 255 : 0, other[1] < 128 ? 255 : 0, other[2] < 128 ? 255 : 0};
}

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

/// Draws one outline of a class. Edges are smooth: 16 points a pixel.
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

constexpr int kColumns = 5;
constexpr int kRows = 7;
constexpr int kDot = 2 * kUnit / 8;  // a side of one dot: seven and half a dot above and below

constexpr std::string_view kGlyphs = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// Columns of each glyph from the left; bit 0 is the upper dot.
constexpr std::array<std::array<std::uint8_t, kColumns>, kGlyphs.size()> kFont{{
    {0x3e, 0x51, 0x49, 0x45, 0x3e}, {0x00, 0x42, 0x7f, 0x40, 0x00}, {0x42, 0x61, 0x51, 0x49, 0x46},
    {0x21, 0x41, 0x45, 0x4b, 0x31}, {0x18, 0x14, 0x12, 0x7f, 0x10}, {0x27, 0x45, 0x45, 0x45, 0x39},
    {0x3c, 0x4a, 0x49, 0x49, 0x30}, {0x01, 0x71, 0x09, 0x05, 0x03}, {0x36, 0x49, 0x49, 0x49, 0x36},
    {0x06, 0x49, 0x49, 0x29, 0x1e}, {0x7e, 0x11, 0x11, 0x11, 0x7e}, {0x7f, 0x49, 0x49, 0x49, 0x36},
    {0x3e, 0x41, 0x41, 0x41, 0x22}, {0x7f, 0x41, 0x41, 0x22, 0x1c}, {0x7f, 0x49, 0x49, 0x49, 0x41},
    {0x7f, 0x09, 0x09, 0x09, 0x01}, {0x3e, 0x41, 0x49, 0x49, 0x7a}, {0x7f, 0x08, 0x08, 0x08, 0x7f},
    {0x00, 0x41, 0x7f, 0x41, 0x00}, {0x20, 0x40, 0x41, 0x3f, 0x01}, {0x7f, 0x08, 0x14, 0x22, 0x41},
    {0x7f, 0x40, 0x40, 0x40, 0x40}, {0x7f, 0x02, 0x0c, 0x02, 0x7f}, {0x7f, 0x04, 0x08, 0x10, 0x7f},
    {0x3e, 0x41, 0x41, 0x41, 0x3e}, {0x7f, 0x09, 0x09, 0x09, 0x06}, {0x3e, 0x41, 0x51, 0x21, 0x5e},
    {0x7f, 0x09, 0x19, 0x29, 0x46}, {0x46, 0x49, 0x49, 0x49, 0x31}, {0x01, 0x01, 0x7f, 0x01, 0x01},
    {0x3f, 0x40, 0x40, 0x40, 0x3f}, {0x1f, 0x20, 0x40, 0x20, 0x1f}, {0x3f, 0x40, 0x38, 0x40, 0x3f},
    {0x63, 0x14, 0x08, 0x14, 0x63}, {0x07, 0x08, 0x70, 0x08, 0x07}, {0x61, 0x51, 0x49, 0x45, 0x43},
}};

bool glyph(int label, int x, int y) {
  const int left = x + kColumns * kDot / 2;
  const int down = y + kRows * kDot / 2;
  if (left < 0 || down < 0 || left >= kColumns * kDot || down >= kRows * kDot) return false;
  const auto column = kFont[static_cast<std::size_t>(label)][static_cast<std::size_t>(left / kDot)];
  return (column >> (down / kDot) & 1) != 0;
}

struct Point {
  int x, y;
};

bool in_circle(int x, int y, int radius) {
  return x * x + y * y <= radius * radius;
}

bool in_square(int x, int y, int half) {
  return std::max(std::abs(x), std::abs(y)) <= half;
}

/// Even-odd rule: a ray to the right crosses the border an odd number of times.
template <std::size_t N>
bool in_polygon(const std::array<Point, N>& corners, int x, int y) {
  bool inside = false;
  for (std::size_t i = 0, j = N - 1; i < N; j = i++) {
    const auto &a = corners[i], &b = corners[j];
    if ((a.y > y) == (b.y > y)) continue;
    const std::int64_t side = std::int64_t{b.x - a.x} * (y - a.y) - std::int64_t{x - a.x} * (b.y - a.y);
    inside ^= (side > 0) == (b.y > a.y);
  }
  return inside;
}

constexpr std::array<Point, 3> kTriangle{{{0, -1000}, {866, 500}, {-866, 500}}};
constexpr std::array<Point, 10> kStar{{{0, -1000},
                                       {225, -309},
                                       {951, -309},
                                       {363, 118},
                                       {588, 809},
                                       {0, 382},
                                       {-588, 809},
                                       {-363, 118},
                                       {-951, -309},
                                       {-225, -309}}};

constexpr std::array<const char*, 8> kShapes{"circle", "crescent", "cross", "frame",
                                             "ring",   "square",   "star",  "triangle"};

bool shape(int label, int x, int y) {
  switch (label) {
    case 0:
      return in_circle(x, y, 950);
    case 1:
      return in_circle(x, y, 980) && !in_circle(x - 500, y, 800);
    case 2:
      return (std::abs(x) <= 280 && std::abs(y) <= 950) || (std::abs(y) <= 280 && std::abs(x) <= 950);
    case 3:
      return in_square(x, y, 820) && !in_square(x, y, 500);
    case 4:
      return in_circle(x, y, 950) && !in_circle(x, y, 580);
    case 5:
      return in_square(x, y, 800);
    case 6:
      return in_polygon(kStar, x, y);
    default:
      return in_polygon(kTriangle, x, y);
  }
}

constexpr int kPeriod = 1'024;  // units that a pattern takes to repeat

constexpr std::array<const char*, 8> kTextures{"bricks", "checks", "columns", "dots", "grid", "rings", "rows", "waves"};

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

/// True if a point has the second color. All are in units; (x0, y0) is where rings have their middle.
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

Picture draw_texture(int label, int size, Random random) {
  const int side = size * kEighths;
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

constexpr int kLeastSize = 8;
constexpr int kMostSize = 1'024;
constexpr std::int64_t kMostImages = 100'000'000;

void check(const std::string& what, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  throw std::runtime_error(what + " = " + std::to_string(value) + ": want " + std::to_string(least) + " to " +
                           std::to_string(most));
}

}  // namespace

std::vector<std::string> labels_of(Painted kind) {
  if (kind == Painted::kShapes) return {kShapes.begin(), kShapes.end()};
  if (kind == Painted::kTextures) return {kTextures.begin(), kTextures.end()};
  std::vector<std::string> labels;
  for (const char sign : kGlyphs) labels.emplace_back(1, sign);
  return labels;
}

Picture paint(Painted kind, const GeneratedOptions& options, std::int64_t index) {
  const Random random(options.seed, static_cast<std::uint64_t>(index));
  const auto label_of = [index](std::size_t classes) {
    return static_cast<int>(index % static_cast<std::int64_t>(classes));
  };
  if (kind == Painted::kTextures) return draw_texture(label_of(kTextures.size()), options.size, random);
  if (kind == Painted::kGlyphs) return draw_scene(glyph, label_of(kFont.size()), Turn::kLittle, options.size, random);
  return draw_scene(shape, label_of(kShapes.size()), Turn::kAnyWay, options.size, random);
}

ImageSource open_painted(Painted kind, const GeneratedOptions& options) {
  constexpr std::array<const char*, 3> kNames{"shapes", "glyphs", "textures"};
  const std::string name = kNames.at(static_cast<std::size_t>(kind));
  check("size of " + name, options.size, kLeastSize, kMostSize);
  check("count of " + name, options.count, 1, kMostImages);
  auto labels = labels_of(kind);
  const auto classes = std::ssize(labels);
  return in_parts(name + " size=" + std::to_string(options.size) + " count=" + std::to_string(options.count) +
                      " seed=" + std::to_string(options.seed),
                  std::move(labels), options.count,
                  [kind, options, classes](std::int64_t number, const ImageSink& sink) {
                    sink(paint(kind, options, number), static_cast<std::int32_t>(number % classes));
                  });
}

}  // namespace data::prepare
