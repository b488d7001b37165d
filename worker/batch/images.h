#pragma once

#include <cstdint>
#include <memory>

#include "data/format/reader.h"
#include "worker/batch/crops.h"
#include "worker/batch/source.h"

namespace worker {

/// The images of a split of kind images with their labels, without anything random, for evaluations; see middle_crop().
/// A record is a sample of weight 1. Tensors: pixels [b, 3, size, size] and labels. Throws base::UsageError naming the
/// value and the remedy for a size below 1, and for a split without images.
std::shared_ptr<const BatchSource> images_of(std::shared_ptr<const data::format::Dataset> split, std::int64_t size);

/// Crops of the images of a split of kind images, for self-distillation; see crops_of(). A record is a sample of weight
/// 1. Each epoch crops it anew. Tensors: global_crops, local_crops, masks, masked, mask_weight. A masked patch weighs 1
/// / (masked patches of its crop), so that each crop with masks weighs 1. Throws base::UsageError naming the option,
/// its value and what it takes, and for a split without images.
std::shared_ptr<const BatchSource> image_crops(std::shared_ptr<const data::format::Dataset> split,
                                               const CropOptions& options);

}  // namespace worker
