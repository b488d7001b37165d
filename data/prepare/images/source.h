#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/prepare/images/picture.h"

namespace data::prepare {

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
