#include "infer/image_view.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "infer/described.h"
#include "models/config_json.h"
#include "models/config_members.h"
#include "models/dinov2/hf.h"
#include "prepare/images/resize.h"
#include "rank/errors.h"

namespace infer {
namespace {

namespace fs = std::filesystem;
using fsdp::Json;
using worker::given;
using worker::UsageError;

/// Members that change nothing of the picture. Pictures are RGB when they come here.
constexpr auto kNoEffect = std::to_array<std::string_view>(
    {"do_convert_rgb", "feature_extractor_type", "processor_class", "_processor_class", "_valid_processor_keys",
     "data_format", "input_data_format", "device", "return_tensors", "disable_grouping", "image_seq_length", "auto_map",
     "transformers_version"});

/// Members that must be as in our own export, or absent.
constexpr auto kAsExported =
    std::to_array<std::string_view>({"image_mean", "image_std", "rescale_factor", "resample", "do_resize",
                                     "do_center_crop", "do_rescale", "do_normalize"});

/// The processors of transformers that make this of a picture.
constexpr auto kProcessors =
    std::to_array<std::string_view>({"BitImageProcessor", "BitImageProcessorFast", "BitImageProcessorPil"});

std::int64_t whole_in(const Json* object, const char* name) {
  const Json* member = object == nullptr || !object->is_object() ? nullptr : given(*object, name);
  return member != nullptr && member->is_int() && member->as_int() > 0 ? member->as_int() : 0;
}

/// A side that may be written as a number alone.
std::int64_t side_in(const Json* size, const char* name) {
  return size != nullptr && size->is_int() && size->as_int() > 0 ? size->as_int() : whole_in(size, name);
}

bool is_near(const Json& number, const Json& want) {
  return number.is_number() && want.is_number() ? std::abs(number.as_double() - want.as_double()) <= 1e-6
                                                : number == want;
}

/// Up to rounding.
bool is_usual(const Json& own, const Json& want) {
  if (!want.is_array()) return is_near(own, want);
  return own.is_array() && std::ranges::equal(own.as_array(), want.as_array(), is_near);
}

[[noreturn]] void refuse(const fs::path& file, const std::string& member, const Json& value, const std::string& want) {
  throw UsageError(file.native() + ": " + member + " = " + worker::shown_value(value) + "; " + want);
}

void check_members(const fs::path& file, const Json& config, const Json& usual) {
  for (const auto& [name, value] : config.as_object()) {
    if (value.is_null()) continue;
    if (std::ranges::find(kAsExported, name) != kAsExported.end()) {
      if (!is_usual(value, usual.at(name)))
        refuse(file, name, value, "want " + usual.at(name).dump() + ", which is all that is known here");
    } else if (name == "image_processor_type") {
      if (!value.is_string() || std::ranges::find(kProcessors, value.as_string()) == kProcessors.end())
        refuse(file, name, value, "want \"BitImageProcessor\", which DINOv2 has");
    } else if (name == "do_pad") {
      if (!(value == Json(false))) refuse(file, name, value, "want false");
    } else if (name != "size" && name != "crop_size" && std::ranges::find(kNoEffect, name) == kNoEffect.end()) {
      refuse(file, name, value,
             "this program does not know whether that changes the picture; remove the member if it changes nothing");
    }
  }
}

}  // namespace

ImageView image_view(const Source& source) {
  const Json usual = worker::dinov2_preprocessor(source.values);
  const fs::path file = source.folder / worker::kPreprocessorFile;
  std::error_code error;
  const bool is_there = !source.checkpoint && fs::is_regular_file(file, error);
  const Json config = is_there ? read_json_object(file) : usual;
  check_members(file, config, usual);
  const Json *crop = given(config, "crop_size"), *size = given(config, "size");
  const std::int64_t height = side_in(crop, "height"), width = side_in(crop, "width");
  const std::int64_t shortest = side_in(size, "shortest_edge");
  if (height == 0 || height != width || shortest < height || shortest > prepare::kMostSide) {
    throw UsageError(file.native() +
                     ": want crop_size with equal height and width, and size with a shortest_edge that is not shorter");
  }
  return {shortest, height};
}

prepare::Picture viewed(const prepare::Picture& picture, const ImageView& view) {
  const std::int64_t shorter = std::min(picture.height, picture.width),
                     longer = std::max(picture.height, picture.width);
  const std::int64_t long_edge = view.shortest_edge * longer / shorter;
  if (long_edge > prepare::kMostSide) {
    throw std::runtime_error("has " + std::to_string(picture.width) + " x " + std::to_string(picture.height) +
                             " pixels, and would have a side of " + std::to_string(long_edge) +
                             "; give a picture that is less narrow");
  }
  const auto shortest = static_cast<int>(view.shortest_edge), longest = static_cast<int>(long_edge);
  const bool is_upright = picture.width <= picture.height;
  const prepare::Picture whole =
      prepare::resize_bicubic(picture, is_upright ? longest : shortest, is_upright ? shortest : longest);
  const auto side = static_cast<std::size_t>(view.side), row = static_cast<std::size_t>(whole.width);
  const std::size_t top = (static_cast<std::size_t>(whole.height) - side) / 2, left = (row - side) / 2;
  prepare::Picture out{static_cast<int>(side), static_cast<int>(side), {}};
  for (std::size_t y = top; y < top + side; ++y) {
    const auto begin = whole.rgb.begin() + static_cast<std::ptrdiff_t>(3 * (y * row + left));
    out.rgb.insert(out.rgb.end(), begin, begin + static_cast<std::ptrdiff_t>(3 * side));
  }
  return out;
}

}  // namespace infer
