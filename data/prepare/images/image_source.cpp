#include "data/prepare/images/image_source.h"

#include <algorithm>
#include <stdexcept>

namespace data::prepare {

ImageRange images_of_part(std::int64_t part, std::int64_t images) {
  if (part < 0 || part >= image_parts(images)) {
    throw std::out_of_range("part " + std::to_string(part) + ": the images have " +
                            std::to_string(image_parts(images)) + " parts");
  }
  return {part * kImagesAPart, std::min(images, (part + 1) * kImagesAPart)};
}

}  // namespace data::prepare
