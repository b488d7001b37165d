#pragma once

#include <cstdint>
#include <functional>
#include <string>
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

/// Images in one part of a source.
inline constexpr std::int64_t kImagesAPart = 4'096;

/// Receives an image and the number of its label, -1 if it has none.
using ImageSink = std::function<void(const Picture& picture, std::int32_t label)>;

/// Images in numbered parts. A part is always the same images in the same order.
struct ImageSource {
  std::string description;          ///< kind, options and, for files, a fingerprint; equal ones mean equal images
  std::vector<std::string> labels;  ///< names of the labels by number; empty: no image has one
  std::int64_t images = 0;
  std::int64_t parts = 0;
  /// Passes the images of part 0 to parts - 1 to the sink. Several threads may read. Throws std::runtime_error naming
  /// the file, and std::out_of_range for another part.
  std::function<void(std::int64_t part, const ImageSink& sink)> read;
};

/// The images [first, last) of a part. Throws std::out_of_range naming the part if the source has none of this number.
struct ImageRange {
  std::int64_t first, last;
};
ImageRange images_of_part(std::int64_t part, std::int64_t images);

/// Parts of so many images: one at least, so that no images are an empty part and not no part.
constexpr std::int64_t image_parts(std::int64_t images) {
  return images <= kImagesAPart ? 1 : (images + kImagesAPart - 1) / kImagesAPart;
}

}  // namespace data::prepare
