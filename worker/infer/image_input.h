#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/prepare/images/image_source.h"
#include "spec/tables/dinov2_keys.h"
#include "worker/infer/model_source.h"

namespace infer {

/// How pictures become what a model reads: as transformers' BitImageProcessor makes them. The shorter side is resized,
/// a square is cut out of the middle, and its values, from 0 to 1, are normalised channel by channel.
struct ImageView {
  std::int64_t shortest_edge = 0;  // in pixels, after resizing
  std::int64_t side = 0;           // of the square, not longer than shortest_edge
  std::array<double, 3> mean = spec::kImageNetMean;
  std::array<double, 3> deviation = spec::kImageNetDeviation;  // above 0
};

/// That of preprocessor_config.json beside the weights, or of "image_processor" in processor_config.json, or else that
/// of an export; see worker::dinov2_preprocessor(). Every member of a file is read, known to be without effect, or
/// refused. A member that the file lacks has the default of BitImageProcessor, as in transformers. Throws
/// base::UsageError naming file, member, value and remedy for a file that cannot be read, for another processor, and
/// for a file that asks for something else than bicubic resizing, cutting the middle out and normalising.
ImageView image_view(const Source& source);

/// The square that a view shows of a picture, as RGB of 8 bits. Equal to transformers' own picture before it is
/// normalised. Throws std::runtime_error for a picture so narrow that its longer side would be too long.
data::prepare::Picture viewed(const data::prepare::Picture& picture, const ImageView& view);

/// The files that paths name, and all images in folders at any depth, sorted by their paths. Images are told by the
/// ends of their names. Throws base::UsageError for a path that is neither file nor folder, and for a folder without
/// images.
std::vector<std::filesystem::path> image_files(const std::vector<std::string>& paths);

/// fp32 [3, side, side], normalised. Throws base::UsageError naming a file that is no image.
at::Tensor pixels_of(const std::filesystem::path& file, const ImageView& view);

}  // namespace infer
