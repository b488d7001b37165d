#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

#include "worker/infer/image_view.h"

namespace infer {

/// The files that paths name, and all images in folders at any depth, sorted by their paths. Images are told by the
/// ends of their names. Throws base::UsageError for a path that is neither file nor folder, and for a folder without
/// images.
std::vector<std::filesystem::path> image_files(const std::vector<std::string>& paths);

/// fp32 [3, side, side], normalised. Throws base::UsageError naming a file that is no image.
at::Tensor pixels_of(const std::filesystem::path& file, const ImageView& view);

}  // namespace infer
