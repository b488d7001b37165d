#include "worker/infer/image_input.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <stdexcept>
#include <string_view>

#include "base/usage_error.h"
#include "data/prepare/images/decode_image.h"
#include "worker/batch/augment.h"
#include "worker/models/config_json.h"
#include "worker/models/config_members.h"
#include "worker/models/dinov2/dinov2_model.h"

namespace infer {
namespace {

namespace fs = std::filesystem;
using base::UsageError;
using fsdp::Json;
using worker::given;

/// Members that change nothing of the picture. Pictures are RGB when they come here.
constexpr auto kNoEffect = std::to_array<std::string_view>(
    {"do_convert_rgb", "processor_class", "_processor_class", "_valid_processor_keys", "_valid_kwargs_names",
     "input_data_format", "device", "return_tensors", "disable_grouping", "image_seq_length", "pad_size", "auto_map",
     "transformers_version"});

/// Members that the readers of sizes and numbers have, and that check_type() has.
constexpr auto kSizesAndNumbers = std::to_array<std::string_view>({"size", "crop_size", "image_mean", "image_std"});
constexpr auto kTypes = std::to_array<std::string_view>({"image_processor_type", "feature_extractor_type"});

/// Members that must be as in our own export. BitImageProcessor has the same values where the file says nothing.
constexpr auto kAsExported = std::to_array<std::string_view>(
    {"rescale_factor", "resample", "do_resize", "do_center_crop", "do_rescale", "do_normalize"});

/// Members that must have one value.
constexpr auto kOnly = std::to_array<worker::OnlyValue>(
    {{"do_pad", "false"}, {"default_to_square", "false"}, {"data_format", "\"channels_first\""}});

/// The processors of transformers that make this of a picture. DINOv2 has the first one.
constexpr auto kProcessors =
    std::to_array<std::string_view>({"BitImageProcessor", "BitImageProcessorFast", "BitImageProcessorPil"});

/// Values that BitImageProcessor takes where the file says nothing.
constexpr std::int64_t kUsualSide = 224;
constexpr std::array<double, 3> kUsualMean{0.48145466, 0.4578275, 0.40821073};
constexpr std::array<double, 3> kUsualDeviation{0.26862954, 0.26130258, 0.27577711};

constexpr const char *kProcessorFile = "processor_config.json", *kNested = "image_processor";

/// A processor as a file has it.
struct Processor {
  fs::path file;
  Json members;
};

[[noreturn]] void refuse(const fs::path& file, std::string_view member, const Json& value, const std::string& want) {
  throw UsageError(file.native() + ": " + std::string(member) + " = " + worker::shown_value(value) + "; " + want);
}

bool has(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool is_near(const Json& own, const Json& want) {
  return own.is_number() && want.is_number() ? std::abs(own.as_double() - want.as_double()) <= 1e-6 : own == want;
}

/// A flag that is null is false for transformers. Another member that is null is the default for transformers 4, if it
/// does not fail, and fails for transformers 5.
void check_member(const fs::path& file, const std::string& name, const Json& value, const Json& usual) {
  if (value.is_null() && has(kSizesAndNumbers, name))
    refuse(file, name, value, "write the value, or remove the member: transformers 5 refuses null");
  if (has(kAsExported, name)) {
    const std::string want = "want " + usual.at(name).dump();
    if (value.is_null())
      refuse(file, name, value,
             want + (usual.at(name).is_bool() ? "; null is false for transformers" : "; transformers refuses null"));
    if (!is_near(value, usual.at(name))) refuse(file, name, value, want + ", which is all that is known here");
    return;
  }
  if (value.is_null()) return;
  if (const auto* const only = std::ranges::find(kOnly, name, &worker::OnlyValue::member); only != kOnly.end()) {
    if (!(value == Json::parse(only->json))) refuse(file, name, value, "want " + std::string(only->json));
  } else if (!has(kSizesAndNumbers, name) && !has(kTypes, name) && !has(kNoEffect, name)) {
    refuse(file, name, value,
           "this program does not know whether that changes the picture; remove the member if it changes nothing");
  }
}

/// Without a type transformers takes the processor of an old extractor, and then the one of the model's family.
void check_type(const Processor& processor) {
  const Json* type = given(processor.members, "image_processor_type");
  const char* member = type == nullptr ? "feature_extractor_type" : "image_processor_type";
  if (type == nullptr) type = given(processor.members, member);
  if (type == nullptr) return;
  std::string name = type->is_string() ? type->as_string() : std::string();
  if (const auto at = name.find("FeatureExtractor"); at != std::string::npos)
    name.replace(at, std::string_view("FeatureExtractor").size(), "ImageProcessor");
  if (!has(kProcessors, name))
    refuse(processor.file, member, *type, "want \"BitImageProcessor\", which DINOv2 has; choose another model");
}

std::int64_t side_of(const Json& side) {
  return side.is_int() && side.as_int() > 0 && side.as_int() <= data::prepare::kMostSide ? side.as_int() : 0;
}

/// The length of `size` after resizing. An object has a shortest_edge alone.
std::int64_t shortest_edge(const Processor& processor) {
  const Json* size = given(processor.members, "size");
  if (size == nullptr) return kUsualSide;
  const Json* edge = size->is_object() ? given(*size, "shortest_edge") : size;
  const bool more = size->is_object() && std::ranges::any_of(size->as_object(), [](const auto& one) {
                      return one.first != "shortest_edge" && !(one.first == "longest_edge" && one.second.is_null());
                    });
  const std::int64_t side = edge == nullptr || more ? 0 : side_of(*edge);
  if (side == 0) {
    refuse(processor.file, "size", *size,
           "want {\"shortest_edge\": N}, and N from 1 to " + std::to_string(data::prepare::kMostSide));
  }
  return side;
}

/// The side of the square that crop_size names.
std::int64_t crop_side(const Processor& processor, std::int64_t shortest) {
  const Json* size = given(processor.members, "crop_size");
  const Json usual = kUsualSide;
  if (size == nullptr) size = &usual;
  const Json *height = size->is_object() ? given(*size, "height") : size,
             *width = size->is_object() ? given(*size, "width") : size;
  const bool known = height != nullptr && width != nullptr && (!size->is_object() || size->size() == 2);
  const std::int64_t side = known && *height == *width ? side_of(*height) : 0;
  if (side == 0 || side > shortest) {
    refuse(processor.file, "crop_size", *size,
           "want {\"height\": N, \"width\": N}, and N from 1 to size's shortest_edge = " + std::to_string(shortest));
  }
  return side;
}

/// A number for each channel, or one for all of them. `lowest` is not among the numbers.
std::array<double, 3> of_channels(const Processor& processor, const char* name, const std::array<double, 3>& usual,
                                  double lowest) {
  const Json* value = given(processor.members, name);
  if (value == nullptr) return usual;
  const auto is_good = [lowest](const Json& one) { return one.is_number() && one.as_double() > lowest; };
  std::array<double, 3> out{};
  if (is_good(*value)) {
    out.fill(value->as_double());
  } else if (value->is_array() && value->size() == out.size() && std::ranges::all_of(value->as_array(), is_good)) {
    std::ranges::transform(value->as_array(), out.begin(), [](const Json& one) { return one.as_double(); });
  } else {
    refuse(processor.file, name, *value,
           "want a number for each of red, green and blue" + std::string(lowest == 0 ? ", each above 0" : ""));
  }
  return out;
}

/// transformers 4 reads preprocessor_config.json and without it processor_config.json; transformers 5 reads the latter
/// first. So two of them must be equal. Null members: there is no file.
Processor processor_of(const Source& source) {
  Processor out{source.folder / worker::kPreprocessorFile, {}};
  if (source.checkpoint) return out;
  std::error_code error;
  if (fs::is_regular_file(out.file, error)) out.members = read_json_object(out.file);
  const fs::path other = source.folder / kProcessorFile;
  const Json whole = fs::is_regular_file(other, error) ? read_json_object(other) : Json();
  const Json* nested = given(whole, kNested);
  if (nested == nullptr) return out;
  if (!nested->is_object()) refuse(other, kNested, *nested, "want an object");
  if (out.members.is_object() && !(*nested == out.members)) {
    throw UsageError(other.native() + ": image_processor differs from " + worker::kPreprocessorFile +
                     ", and versions of transformers differ in which one they read; remove one of the two");
  }
  return {other, *nested};
}

}  // namespace

ImageView image_view(const Source& source) {
  const Json usual = worker::dinov2_preprocessor(source.values);
  Processor processor = processor_of(source);
  if (!processor.members.is_object()) processor.members = usual;
  check_type(processor);
  for (const auto& [name, value] : processor.members.as_object()) check_member(processor.file, name, value, usual);
  ImageView view;
  view.shortest_edge = shortest_edge(processor);
  view.side = crop_side(processor, view.shortest_edge);
  view.mean = of_channels(processor, "image_mean", kUsualMean, std::numeric_limits<double>::lowest());
  view.deviation = of_channels(processor, "image_std", kUsualDeviation, 0);
  return view;
}

data::prepare::Picture viewed(const data::prepare::Picture& picture, const ImageView& view) {
  const std::int64_t shorter = std::min(picture.height, picture.width),
                     longer = std::max(picture.height, picture.width);
  const std::int64_t long_edge = view.shortest_edge * longer / shorter;
  if (long_edge > data::prepare::kMostSide) {
    throw std::runtime_error("has " + std::to_string(picture.width) + " x " + std::to_string(picture.height) +
                             " pixels, and would have a side of " + std::to_string(long_edge) +
                             "; give a picture that is less narrow");
  }
  const auto shortest = static_cast<int>(view.shortest_edge), longest = static_cast<int>(long_edge);
  const bool is_upright = picture.width <= picture.height;
  const data::prepare::Picture whole =
      data::prepare::resize_bicubic(picture, is_upright ? longest : shortest, is_upright ? shortest : longest);
  const auto side = static_cast<std::size_t>(view.side), row = static_cast<std::size_t>(whole.width);
  const std::size_t top = (static_cast<std::size_t>(whole.height) - side) / 2, left = (row - side) / 2;
  data::prepare::Picture out{static_cast<int>(side), static_cast<int>(side), {}};
  for (std::size_t y = top; y < top + side; ++y) {
    const auto begin = whole.rgb.begin() + static_cast<std::ptrdiff_t>(3 * (y * row + left));
    out.rgb.insert(out.rgb.end(), begin, begin + static_cast<std::ptrdiff_t>(3 * side));
  }
  return out;
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
