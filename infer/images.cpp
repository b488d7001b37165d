#include "infer/images.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "batch/crops.h"
#include "infer/described.h"
#include "models/config_json.h"
#include "models/dinov2/hf.h"
#include "prepare/images/decode.h"
#include "rank/errors.h"

namespace infer {
namespace {

namespace fs = std::filesystem;
using fsdp::Json;
using worker::given;
using worker::UsageError;

std::int64_t whole_in(const Json* object, const char* name) {
  const Json* member = object == nullptr || !object->is_object() ? nullptr : given(*object, name);
  return member != nullptr && member->is_int() && member->as_int() > 0 ? member->as_int() : 0;
}

bool is_near(const Json& number, const Json& want) {
  return number.is_number() && std::abs(number.as_double() - want.as_double()) <= 1e-6;
}

/// Whether a number or a list of numbers is that of our own export, up to rounding, or left out.
bool is_usual(const Json& config, const Json& usual, const char* name) {
  const Json *own = given(config, name), &want = usual.at(name);
  if (own == nullptr || !want.is_array()) return own == nullptr || is_near(*own, want);
  return own->is_array() && std::ranges::equal(own->as_array(), want.as_array(), is_near);
}

bool is_off(const Json& config, const char* name) {
  const Json* flag = given(config, name);
  return flag != nullptr && flag->is_bool() && !flag->as_bool();
}

}  // namespace

ImageView image_view(const Source& source) {
  const Json usual = worker::dinov2_preprocessor(source.values);
  const fs::path file = source.folder / worker::kPreprocessorFile;
  std::error_code error;
  const bool is_there = !source.checkpoint && fs::is_regular_file(file, error);
  const Json config = is_there ? read_json_object(file) : usual;
  for (const char* name : {"image_mean", "image_std", "rescale_factor", "resample"}) {
    if (!is_usual(config, usual, name)) {
      throw UsageError(file.native() + ": " + name + " = " + config.at(name).dump() + "; want " +
                       usual.at(name).dump() + ", which is all that is known here");
    }
  }
  for (const char* name : {"do_resize", "do_center_crop", "do_rescale", "do_normalize"}) {
    if (is_off(config, name)) throw UsageError(file.native() + ": " + name + " = false; want true");
  }
  const auto height = whole_in(given(config, "crop_size"), "height"),
             width = whole_in(given(config, "crop_size"), "width");
  const auto shortest = whole_in(given(config, "size"), "shortest_edge");
  if (height == 0 || height != width || shortest < height) {
    throw UsageError(file.native() +
                     ": want crop_size with equal height and width, and size with a shortest_edge that is not shorter");
  }
  return {height, static_cast<double>(height) / static_cast<double>(shortest)};
}

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
      if (prepare::has_picture_name(at->path()) && at->is_regular_file()) found.push_back(at->path());
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
    const prepare::Picture picture = prepare::read_picture(file);
    return worker::middle_crop({picture.rgb, picture.height, picture.width}, view.side, view.share);
  } catch (const UsageError&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw UsageError(error.what());
  }
}

}  // namespace infer
