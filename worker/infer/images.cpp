#include "worker/infer/images.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <stdexcept>

#include "base/usage_error.h"
#include "data/prepare/images/decode.h"
#include "worker/batch/augment.h"

namespace infer {

namespace fs = std::filesystem;
using base::UsageError;

std::vector<fs::path> image_files(const std::vector<std::string>& paths) {
  std::vector<fs::path> files;
  for (const auto& path : paths) {
    std::error_code error;
    if (fs::is_regular_file(path, error)) {
      files.emplace_back(path);
      continue;
    }
    if (!fs::is_directory(path, error))
      throw UsageError(path + " is no file and no folder; give images, or folders of them");
    std::vector<fs::path> found;
    for (fs::recursive_directory_iterator at(path, fs::directory_options::follow_directory_symlink, error), end;
         !error && at != end; at.increment(error)) {
      if (data::prepare::has_picture_name(at->path()) && at->is_regular_file()) found.push_back(at->path());
    }
    if (error) throw UsageError(path + ": " + error.message());
    if (found.empty()) throw UsageError(path + " has no image: want files that end in .jpg, .png or .ppm");
    std::ranges::sort(found, {}, [](const fs::path& file) { return file.native(); });
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

at::Tensor pixels_of(const fs::path& file, const ImageView& view) {
  try {
    const data::prepare::Picture seen = viewed(data::prepare::read_picture(file), view);
    at::Tensor pixels = at::empty({seen.height, seen.width, 3}, at::kByte);
    std::ranges::copy(seen.rgb, pixels.mutable_data_ptr<std::uint8_t>());
    const at::Tensor whole = pixels.permute({2, 0, 1}).to(at::kFloat).div(255);
    return worker::normalised(whole, view.mean, view.deviation).contiguous();
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    throw UsageError(text.starts_with(file.native()) ? text : file.native() + ": " + text);
  }
}

}  // namespace infer
