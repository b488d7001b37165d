#include "data/prepare/images/image_source.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

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

ImageSource in_parts(std::string description, std::vector<std::string> labels, std::int64_t images,
                     std::function<void(std::int64_t number, const ImageSink& sink)> tell) {
  const auto parts = std::max<std::int64_t>(1, (images + kImagesAPart - 1) / kImagesAPart);
  return {std::move(description), std::move(labels), images, parts,
          [images, parts, tell = std::move(tell)](std::int64_t part, const ImageSink& sink) {
            if (part < 0 || part >= parts) {
              throw std::out_of_range("part " + std::to_string(part) + ": the images have " + std::to_string(parts) +
                                      " parts");
            }
            const auto end = std::min(images, (part + 1) * kImagesAPart);
            for (auto number = part * kImagesAPart; number < end; ++number) tell(number, sink);
          }};
}

}  // namespace data::prepare
