#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "infer/source.h"

namespace infer {

/// How images become what a model reads.
struct ImageView {
  std::int64_t side = 0;  // of the square in pixels
  double share = 0;       // of the shorter side that the square shows
};

/// That of preprocessor_config.json beside the weights, or else that of an export; see worker::dinov2_preprocessor().
/// Throws worker::UsageError for a file that cannot be read, and for one that asks for something else than bicubic
/// resizing, cutting the middle out and normalising as ImageNet.
ImageView image_view(const Source& source);

/// The files that paths name, and all images in folders at any depth, sorted by their paths. Images are told by the
/// ends of their names. Throws worker::UsageError for a path that is neither file nor folder, and for a folder without
/// images.
std::vector<std::filesystem::path> image_files(const std::vector<std::string>& paths);

/// fp32 [3, side, side], normalised. Throws worker::UsageError naming a file that is no image.
at::Tensor pixels_of(const std::filesystem::path& file, const ImageView& view);

}  // namespace infer
