#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "data/order/random.h"
#include "data/prepare/images/image_source.h"

namespace data::prepare {

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

Color draw_color(Random& random);

/// A color that can be told from `other`.
Color draw_unlike(const Color& other, Random& random);

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

/// The half side of the square in which an outline is described: from -kUnit to kUnit, y downwards.
inline constexpr int kUnit = 1'024;

/// A function that tells whether a point belongs to the outline of this class. Pure.
using Outline = bool (*)(int label, int x, int y);

/// How much the outline may turn.
enum class Turn : std::uint8_t { kAnyWay, kLittle };  // 90 degrees to either side, about 18 degrees

/// Draws one outline of a class in a square picture of `size` pixels. What does not tell the class is random: place,
/// size, turn, both colors, the kind of background (plain, gradient, stripes or checks) and noise. Edges are smooth: 16
/// points a pixel. Whole numbers only, so equal arguments give equal bytes on every machine.
Picture draw_scene(Outline outline, int label, Turn turn, int size, Random random);

/// Generated images for tests and examples.
struct GeneratedOptions {
  int size = 48;               // pixels a side, 8 to 1,024
  std::int64_t count = 4'096;  // images, 1 to 100,000,000
  std::uint64_t seed = 0;
};

/// "circle", "crescent", "cross", "frame", "ring", "square", "star", "triangle".
std::vector<std::string> shape_labels();

/// Image `index` of the shapes: its label is index % 8. The shape tells the class. Place, size, turn, colors,
/// background and noise are random and do not. A pure function of options.size, options.seed and index. About
/// 1 ms for 48 pixels.
Picture draw_shape(const GeneratedOptions& options, std::int64_t index);

/// options.count such images. Throws std::runtime_error naming an option outside its range.
ImageSource open_shapes(const GeneratedOptions& options);

/// A source of generated images: checks the options, numbers the parts, and calls `draw` for each index.
ImageSource open_generated(const std::string& kind, const GeneratedOptions& options, std::vector<std::string> labels,
                           Picture (*draw)(const GeneratedOptions&, std::int64_t));

/// "0" to "9", then "A" to "Z".
std::vector<std::string> glyph_labels();

/// Image `index` of the glyphs: its label is index % 36, a digit or a capital letter of 5 x 7 dots. What else differs
/// is that of draw_shape(), but the turn is small, because a 6 must not become a 9. About 1 ms for 48 pixels.
Picture draw_glyph(const GeneratedOptions& options, std::int64_t index);

/// options.count such images. Throws std::runtime_error naming an option outside its range.
ImageSource open_glyphs(const GeneratedOptions& options);

/// "bricks", "checks", "columns", "dots", "grid", "rings", "rows", "waves".
std::vector<std::string> texture_labels();

/// Image `index` of the textures: its label is index % 8. The pattern fills the image and tells the class. Its place,
/// its period, both colors and noise are random and do not tell it. So any part of an image shows its class, while
/// single pixels tell little. A pure function of options.size, options.seed and index.
Picture draw_texture(const GeneratedOptions& options, std::int64_t index);

/// options.count such images. Throws std::runtime_error naming an option outside its range.
ImageSource open_textures(const GeneratedOptions& options);

}  // namespace data::prepare
