#include "worker/batch/images.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/usage_error.h"
#include "worker/batch/augment.h"

namespace worker {
namespace {

constexpr double kFlattest = 0.3;  // height / width; the steepest is its inverse
constexpr int kTries = 10;

/// Masks one rectangle that adds at least 1 and at most `most` patches. Returns how many it added; 0: none was found.
std::int64_t add_block(std::vector<std::uint8_t>& mask, std::int64_t rows, std::int64_t columns, std::int64_t most,
                       data::order::Random& random) {
  for (int i = 0; i < kTries; ++i) {
    const double area = random.between(kLeastBlock, static_cast<double>(most));
    const double ratio = std::exp(random.between(std::log(kFlattest), -std::log(kFlattest)));
    const auto height = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area * ratio)));
    const auto width = static_cast<std::int64_t>(std::nearbyint(std::sqrt(area / ratio)));
    if (height < 1 || width < 1 || height >= rows || width >= columns) continue;
    const auto top = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(rows - height + 1)));
    const auto left = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(columns - width + 1)));
    const auto each_row = [&](auto what) {
      for (std::int64_t row = top; row < top + height; ++row) {
        const auto begin = mask.begin() + static_cast<std::ptrdiff_t>(row * columns + left);
        what(begin, begin + static_cast<std::ptrdiff_t>(width));
      }
    };
    std::int64_t added = 0;
    each_row([&](auto begin, auto end) { added += std::count(begin, end, std::uint8_t{0}); });
    if (added < 1 || added > most) continue;
    each_row([](auto begin, auto end) { std::fill(begin, end, std::uint8_t{1}); });
    return added;
  }
  return 0;
}

constexpr std::int64_t kLeastCrop = 5;  // what blurred() takes
constexpr double kFlip = 0.5, kJitter = 0.8, kGrey = 0.2;
constexpr double kBrightness = 0.4, kContrast = 0.4, kSaturation = 0.2, kHue = 0.1;
constexpr double kLeastSigma = 0.1, kMostSigma = 2.0, kSolarizeFrom = 128.0 / 255;
constexpr std::uint64_t kMaskStream = std::uint64_t{1} << 32;  // views have the streams from 0 on

/// Settings in which the kinds of views differ.
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

void check_has_images(const data::format::Dataset& split) {
  if (split.records() == 0) throw base::UsageError("the data has no image; prepare more");
}

class EvaluationImages : public BatchSource {
 public:
  EvaluationImages(std::shared_ptr<const data::format::Dataset> split, std::int64_t size)
      : split_(std::move(split)), size_(size) {
    if (size < 1) throw base::UsageError("images of " + std::to_string(size) + " pixels; a side has at least 1");
    check_has_images(*split_);
  }

  std::int64_t samples() const override { return split_->records(); }

  Batch collate(std::span<const std::int64_t> samples, std::span<const std::uint64_t>) const override {
    std::vector<at::Tensor> pixels;
    std::vector<std::int64_t> labels;
    for (const auto sample : samples) {
      pixels.push_back(middle_crop(split_->image(sample), size_));
      labels.push_back(split_->label(sample));
    }
    Batch batch;
    batch.tensors = {{"pixels", at::stack(pixels)}, {"labels", to_tensor(labels)}};
    batch.samples = static_cast<std::int64_t>(samples.size());
    batch.weight = static_cast<double>(batch.samples);
    return batch;
  }

 private:
  const std::shared_ptr<const data::format::Dataset> split_;
  const std::int64_t size_;
};

/// The flat places that are true, and for each 1 / (true places of its row).
std::pair<at::Tensor, at::Tensor> masked_places(const at::Tensor& masks) {
  const std::int64_t rows = masks.size(0), columns = masks.size(1);
  const bool* const is_masked = masks.const_data_ptr<bool>();
  std::vector<std::int64_t> places;
  std::vector<float> weights;
  for (std::int64_t row = 0; row < rows; ++row) {
    const bool* const begin = is_masked + row * columns;
    const auto count = std::count(begin, begin + columns, true);
    for (std::int64_t at = 0; at < columns; ++at) {
      if (begin[at]) places.push_back(row * columns + at);
    }
    weights.resize(places.size(), count > 0 ? 1.0F / static_cast<float>(count) : 0.0F);
  }
  at::Tensor weight = at::empty({static_cast<std::int64_t>(weights.size())}, at::kFloat);
  std::copy(weights.begin(), weights.end(), weight.mutable_data_ptr<float>());
  return {to_tensor(places), weight};
}

class ImageCrops : public BatchSource {
 public:
  ImageCrops(std::shared_ptr<const data::format::Dataset> split, const CropOptions& options)
      : split_(std::move(split)), options_(options) {
    try {
      check_crops(options_);
    } catch (const std::invalid_argument& error) {
      throw base::UsageError(error.what());
    }
    check_has_images(*split_);
  }

  std::int64_t samples() const override { return split_->records(); }

  Batch collate(std::span<const std::int64_t> samples, std::span<const std::uint64_t> draws) const override {
    std::vector<at::Tensor> global, local, masks;  // by image: [views, ...]
    for (std::size_t i = 0; i < samples.size(); ++i) {
      Crops crops = crops_of(split_->image(samples[i]), options_, draws[i]);
      global.push_back(std::move(crops.global));
      local.push_back(std::move(crops.local));
      masks.push_back(std::move(crops.masks));
    }
    // The first views of all images, then the second ones, and so on.
    const auto by_view = [](const std::vector<at::Tensor>& of_images) { return at::stack(of_images, 1).flatten(0, 1); };
    const at::Tensor all_masks = by_view(masks);
    auto [masked, mask_weight] = masked_places(all_masks);
    Batch batch;
    batch.tensors = {{"global_crops", by_view(global)},
                     {"local_crops", by_view(local)},
                     {"masks", all_masks},
                     {"masked", std::move(masked)},
                     {"mask_weight", std::move(mask_weight)}};
    batch.samples = static_cast<std::int64_t>(samples.size());
    batch.weight = static_cast<double>(batch.samples);
    return batch;
  }

 private:
  const std::shared_ptr<const data::format::Dataset> split_;
  const CropOptions options_;
};

}  // namespace

std::vector<std::uint8_t> block_mask(std::int64_t rows, std::int64_t columns, std::int64_t count,
                                     data::order::Random& random) {
  std::vector<std::uint8_t> mask(static_cast<std::size_t>(rows * columns), 0);
  // A block of DINOv2 has at most half of the patches.
  const std::int64_t largest = std::max<std::int64_t>(rows * columns / 2, 1);
  for (std::int64_t masked = 0; masked < count;) {
    const std::int64_t added = add_block(mask, rows, columns, std::min(count - masked, largest), random);
    if (added == 0) break;
    masked += added;
  }
  return mask;
}

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

std::shared_ptr<const BatchSource> images_of(std::shared_ptr<const data::format::Dataset> split, std::int64_t size) {
  return std::make_shared<EvaluationImages>(std::move(split), size);
}

std::shared_ptr<const BatchSource> image_crops(std::shared_ptr<const data::format::Dataset> split,
                                               const CropOptions& options) {
  return std::make_shared<ImageCrops>(std::move(split), options);
}

}  // namespace worker
