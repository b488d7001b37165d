#include "data/prepare/images/shapes.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "data/prepare/images/scene.h"

namespace data::prepare {
namespace {

constexpr int kLeastSize = 8;
constexpr int kMostSize = 1'024;
constexpr std::int64_t kMostImages = 100'000'000;

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

constexpr std::array<const char*, 8> kLabels{"circle", "crescent", "cross", "frame",
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

void check(const std::string& what, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  throw std::runtime_error(what + " = " + std::to_string(value) + ": want " + std::to_string(least) + " to " +
                           std::to_string(most));
}

}  // namespace

std::vector<std::string> shape_labels() {
  return {kLabels.begin(), kLabels.end()};
}

Picture draw_shape(const GeneratedOptions& options, std::int64_t index) {
  const int label = static_cast<int>(index % static_cast<std::int64_t>(kLabels.size()));
  return draw_scene(shape, label, Turn::kAnyWay, options.size, Random(options.seed, static_cast<std::uint64_t>(index)));
}

ImageSource open_shapes(const GeneratedOptions& options) {
  return open_generated("shapes", options, shape_labels(), draw_shape);
}

ImageSource open_generated(const std::string& kind, const GeneratedOptions& options, std::vector<std::string> labels,
                           Picture (*draw)(const GeneratedOptions&, std::int64_t)) {
  check("size of " + kind, options.size, kLeastSize, kMostSize);
  check("count of " + kind, options.count, 1, kMostImages);
  const auto classes = static_cast<std::int64_t>(labels.size());
  std::string description = kind + " size=" + std::to_string(options.size) + " count=" + std::to_string(options.count) +
                            " seed=" + std::to_string(options.seed);
  return {std::move(description), std::move(labels), options.count, image_parts(options.count),
          [options, classes, draw](std::int64_t part, const ImageSink& sink) {
            const auto [first, last] = images_of_part(part, options.count);
            for (std::int64_t i = first; i < last; ++i) sink(draw(options, i), static_cast<std::int32_t>(i % classes));
          }};
}

}  // namespace data::prepare
