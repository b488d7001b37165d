#pragma once

#include <cstdint>
#include <string>

#include "infer/source.h"
#include "prepare/images/picture.h"

namespace infer {

/// How pictures become what a model reads: as transformers' BitImageProcessor makes them. The shorter side is resized,
/// and a square is cut out of the middle.
struct ImageView {
  std::int64_t shortest_edge = 0;  // in pixels, after resizing
  std::int64_t side = 0;           // of the square, not longer than shortest_edge
};

/// That of preprocessor_config.json beside the weights, or else that of an export; see worker::dinov2_preprocessor().
/// Every member of the file is read, known to be without effect, or refused. Throws worker::UsageError naming file,
/// member, value and remedy for a file that cannot be read, and for one that asks for something else than bicubic
/// resizing, cutting the middle out and normalising as ImageNet.
ImageView image_view(const Source& source);

/// The square that a view shows of a picture, as RGB of 8 bits. Equal to transformers' own picture before it is
/// normalised. Throws std::runtime_error for a picture so narrow that its longer side would be too long.
prepare::Picture viewed(const prepare::Picture& picture, const ImageView& view);

}  // namespace infer
