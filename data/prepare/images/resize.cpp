#include "data/prepare/images/resize.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

namespace data::prepare {
namespace {

constexpr int kFractionBits = 22;  // of weights: 8 bits of a pixel and a sign fit beside them into 32 bits
constexpr double kReach = 2;       // of the filter, in pixels of the smaller picture

/// Keys' cubic with a = -0.5.
double cubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * kA : 0;
}

/// The old pixels that a new one is made of, and their weights.
struct Taps {
  int first = 0;
  std::vector<std::int32_t> weights;
};

std::vector<Taps> taps_of(int from, int to) {
  const double scale = static_cast<double>(from) / to, stretch = std::max(scale, 1.0), reach = kReach * stretch;
  std::vector<Taps> out(static_cast<std::size_t>(to));
  for (int at = 0; at < to; ++at) {
    const double center = (at + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(std::lround(center - reach)));
    const int last = std::min(from, static_cast<int>(std::lround(center + reach)));
    std::vector<double> weights;
    double sum = 0;
    for (int x = first; x < last; ++x) {
      weights.push_back(cubic((x - center + 0.5) * (1 / stretch)));
      sum += weights.back();
    }
    Taps& taps = out[static_cast<std::size_t>(at)];
    taps.first = first;
    for (const double weight : weights) {
      const double share = (sum != 0 ? weight / sum : weight) * (1 << kFractionBits);
      taps.weights.push_back(static_cast<std::int32_t>(share < 0 ? share - 0.5 : share + 0.5));
    }
  }
  return out;
}

std::uint8_t to_byte(std::int64_t sum) {
  return static_cast<std::uint8_t>(std::clamp<std::int64_t>(sum >> kFractionBits, 0, 255));
}

/// One new pixel's channel out of old ones that lie `step` bytes apart.
std::uint8_t weighted(const std::uint8_t* first, std::size_t step, const std::vector<std::int32_t>& weights) {
  std::int64_t sum = std::int64_t{1} << (kFractionBits - 1);
  for (const auto weight : weights) {
    sum += std::int64_t{*first} * weight;
    first += step;
  }
  return to_byte(sum);
}

Picture with_width(const Picture& picture, int width) {
  if (picture.width == width) return picture;
  const auto taps = taps_of(picture.width, width);
  Picture out{picture.height, width, {}};
  out.rgb.reserve(std::size_t{3} * static_cast<std::size_t>(width) * static_cast<std::size_t>(picture.height));
  for (int y = 0; y < picture.height; ++y) {
    const std::uint8_t* row = picture.rgb.data() + std::size_t{3} * static_cast<std::size_t>(picture.width) * y;
    for (const Taps& tap : taps)
      for (int c = 0; c < 3; ++c) out.rgb.push_back(weighted(row + 3 * tap.first + c, 3, tap.weights));
  }
  return out;
}

Picture with_height(Picture picture, int height) {
  if (picture.height == height) return picture;
  const auto taps = taps_of(picture.height, height);
  const std::size_t row = std::size_t{3} * static_cast<std::size_t>(picture.width);
  Picture out{height, picture.width, {}};
  out.rgb.reserve(row * static_cast<std::size_t>(height));
  for (const Taps& tap : taps) {
    const std::uint8_t* first = picture.rgb.data() + row * static_cast<std::size_t>(tap.first);
    for (std::size_t i = 0; i < row; ++i) out.rgb.push_back(weighted(first + i, row, tap.weights));
  }
  return out;
}

}  // namespace

Picture resize_bicubic(const Picture& picture, int height, int width) {
  for (const int side : {height, width}) {
    if (side >= 1 && side <= kMostSide) continue;
    throw std::invalid_argument("a side of " + std::to_string(side) + " pixels: want 1 to " +
                                std::to_string(kMostSide));
  }
  return with_height(with_width(picture, width), height);
}

}  // namespace data::prepare
