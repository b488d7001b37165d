#include "worker/batch/images.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/usage_error.h"
#include "worker/batch/padding.h"

namespace worker {
namespace {

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

std::shared_ptr<const BatchSource> images_of(std::shared_ptr<const data::format::Dataset> split, std::int64_t size) {
  return std::make_shared<EvaluationImages>(std::move(split), size);
}

std::shared_ptr<const BatchSource> image_crops(std::shared_ptr<const data::format::Dataset> split,
                                               const CropOptions& options) {
  return std::make_shared<ImageCrops>(std::move(split), options);
}

}  // namespace worker
