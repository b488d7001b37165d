#include "worker/batch/crops.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "data/order/random.h"
#include "worker/batch/augment.h"
#include "worker/batch/block_mask.h"

namespace worker {
namespace {

constexpr std::int64_t kLeastCrop = 5;  // what blurred() takes
constexpr double kFlip = 0.5, kJitter = 0.8, kGrey = 0.2;
constexpr double kBrightness = 0.4, kContrast = 0.4, kSaturation = 0.2, kHue = 0.1;
constexpr double kLeastSigma = 0.1, kMostSigma = 2.0, kSolarizeFrom = 128.0 / 255;
constexpr std::uint64_t kMaskStream = std::uint64_t{1} << 32;  // views have the streams from 0 on

/// What the kinds of views differ in.
struct ViewKind {
  std::int64_t size;
  double low, high, blur, solarize;
};

at::Tensor jittered(at::Tensor image, data::order::Random& random) {
  std::vector<int> order{0, 1, 2, 3};
  random.shuffle(order);
  for (const int step : order) {
    if (step == 0) image = with_brightness(image, random.between(1 - kBrightness, 1 + kBrightness));
    if (step == 1) image = with_contrast(image, random.between(1 - kContrast, 1 + kContrast));
    if (step == 2) image = with_saturation(image, random.between(1 - kSaturation, 1 + kSaturation));
    if (step == 3) image = with_hue(image, random.between(-kHue, kHue));
  }
  return image;
}

at::Tensor random_view(const data::format::Image& image, const ViewKind& kind, data::order::Random random) {
  const Box box = random_box(image.height, image.width, kind.low, kind.high, random);
  at::Tensor view = resized_part(image, box, kind.size, kind.size);
  if (random.happens(kFlip)) view = mirrored(view);
  if (random.happens(kJitter)) view = jittered(view, random);
  if (random.happens(kGrey)) view = grey(view);
  if (random.happens(kind.blur)) view = blurred(view, random.between(kLeastSigma, kMostSigma));
  if (random.happens(kind.solarize)) view = solarized(view, kSolarizeFrom);
  return normalised(view);
}

/// [2, patches]
at::Tensor random_masks(const CropOptions& options, std::uint64_t seed) {
  const std::int64_t grid = options.global_size / options.patch_size, patches = grid * grid;
  at::Tensor masks = at::empty({2, patches}, at::kBool);
  for (std::int64_t crop = 0; crop < 2; ++crop) {
    data::order::Random random(seed, kMaskStream + static_cast<std::uint64_t>(crop));
    const bool is_masked = random.happens(options.mask_probability);
    const double share = random.between(options.mask_low, options.mask_high);
    const auto count = is_masked ? static_cast<std::int64_t>(static_cast<double>(patches) * share) : 0;
    const auto mask = block_mask(grid, grid, count, random);
    std::copy(mask.begin(), mask.end(), masks.data_ptr<bool>() + crop * patches);
  }
  return masks;
}

void want_crop_option(bool is_right, const char* option, double value, const std::string& want) {
  if (is_right) return;
  std::string text = std::to_string(value);
  if (value == std::floor(value)) text = std::to_string(static_cast<std::int64_t>(value));
  throw std::invalid_argument("crops: " + std::string(option) + " = " + text + ": want " + want);
}

void want_share(const char* low_name, double low, const char* high_name, double high, bool may_be_zero) {
  want_crop_option(low <= 1 && (low > 0 || (may_be_zero && low == 0)), low_name, low,
                   may_be_zero ? "a share from 0 to 1" : "a share above 0, at most 1");
  want_crop_option(high >= low && high <= 1, high_name, high, "a share from " + std::string(low_name) + " to 1");
}

}  // namespace

void check_crops(const CropOptions& options) {
  const std::int64_t least = std::max(options.patch_size, kLeastCrop);
  const std::string side = "a side of at least " + std::to_string(least) + " pixels, which is one patch";
  want_crop_option(options.patch_size >= 1, "patch_size", static_cast<double>(options.patch_size), "at least 1");
  want_crop_option(options.global_size >= least, "global_size", static_cast<double>(options.global_size), side);
  want_crop_option(options.local_size >= least || options.local_crops == 0, "local_size",
                   static_cast<double>(options.local_size), side);
  want_crop_option(options.local_crops >= 0, "local_crops", static_cast<double>(options.local_crops), "0 or more");
  want_share("global_low", options.global_low, "global_high", options.global_high, false);
  want_share("local_low", options.local_low, "local_high", options.local_high, false);
  want_share("mask_low", options.mask_low, "mask_high", options.mask_high, true);
  want_crop_option(options.mask_probability >= 0 && options.mask_probability <= 1, "mask_probability",
                   options.mask_probability, "a probability");
}

Crops crops_of(const data::format::Image& image, const CropOptions& options, std::uint64_t seed) {
  const std::array<ViewKind, 2> global{
      ViewKind{options.global_size, options.global_low, options.global_high, /*blur=*/1.0, /*solarize=*/0.0},
      ViewKind{options.global_size, options.global_low, options.global_high, /*blur=*/0.1, /*solarize=*/0.2}};
  const ViewKind local{options.local_size, options.local_low, options.local_high, /*blur=*/0.5, /*solarize=*/0.0};
  std::uint64_t stream = 0;
  std::vector<at::Tensor> large, small;
  for (const ViewKind& kind : global) large.push_back(random_view(image, kind, data::order::Random(seed, stream++)));
  for (std::int64_t i = 0; i < options.local_crops; ++i) {
    small.push_back(random_view(image, local, data::order::Random(seed, stream++)));
  }
  return {.global = at::stack(large),
          .local = small.empty() ? at::empty({0, 3, options.local_size, options.local_size}) : at::stack(small),
          .masks = random_masks(options, seed)};
}

at::Tensor middle_crop(const data::format::Image& image, std::int64_t size) {
  // The part of the image that the middle of the resized one shows.
  const double shorter = std::min(image.height, image.width);
  const auto side = std::max<std::int64_t>(1, static_cast<std::int64_t>(std::nearbyint(shorter * kMiddleShare)));
  return normalised(resized_part(
      image, {.top = (image.height - side) / 2, .left = (image.width - side) / 2, .height = side, .width = side}, size,
      size));
}

}  // namespace worker
