#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "data/format/dataset.h"
#include "data/format/format.h"
#include "data/order/random.h"
#include "worker/batch/batch.h"

namespace worker {

/// Blockwise masking of BEiT (Bao et al., arXiv 2106.08254, algorithm 1), as DINOv2 has it: rectangles of at least
/// kLeastBlock patches, with sides in a ratio from 0.3 to 1 / 0.3, are masked until `count` patches are. The last ones
/// may be smaller, and it gives up where none fits after ten tries. So between 0 and `count` patches are masked, most
/// often all. The result has rows x columns places, row by row: 1 is masked. Depends on the arguments alone.
std::vector<std::uint8_t> block_mask(std::int64_t rows, std::int64_t columns, std::int64_t count,
                                     data::order::Random& random);

inline constexpr std::int64_t kLeastBlock = 4;

/// Options of the crops that self-distillation sees of an image: two large crops and some small ones, each changed at
/// random (Caron et al., SwAV, arXiv 2006.09882; Oquab et al., DINOv2, arXiv 2304.07193). Sizes are in pixels.
struct CropOptions {
  std::int64_t global_size = 224;  ///< side of the two global crops, at least patch_size and 5
  std::int64_t local_size = 96;    ///< side of the local crops, the same
  std::int64_t local_crops = 8;    ///< how many, 0 or more
  std::int64_t patch_size = 14;    ///< side of the patches that masks hide
  // The share of the image's area that a crop shows is uniform in [low, high).
  double global_low = 0.32, global_high = 1;
  double local_low = 0.05, local_high = 0.32;
  double mask_probability = 0.5;           ///< that patches of a global crop are masked
  double mask_low = 0.1, mask_high = 0.5;  ///< of its patches, such a share is masked, uniform in [low, high)
};

struct Crops {
  at::Tensor global;  ///< fp32 [2, 3, global_size, global_size], normalised
  at::Tensor local;   ///< fp32 [local_crops, 3, local_size, local_size], normalised
  at::Tensor masks;   ///< bool [2, patches of a global crop]: whether the student does not see a patch
};

/// Throws std::invalid_argument that names the option, its value and what it takes.
void check_crops(const CropOptions& options);

/// The crops of an image. They depend on the arguments alone, so that an image has the same ones on every rank and at
/// every world size. Crops and masks are those of DINOv2's augmentations.py and masking.py, but for three things:
/// values are not rounded to bytes between the steps; each global crop draws for itself whether and how much of it is
/// masked; and the blurring has the probabilities of the paper (1 for the first global crop, 0.1 for the second, 0.5
/// for local ones), where that code has the complements.
///
/// `options` must be ones that check_crops() takes. Throws c10::Error for an image whose bytes are not height x width x
/// 3. Thread-safe.
Crops crops_of(const data::format::Image& image, const CropOptions& options, std::uint64_t seed);

/// The share of an image's shorter side that evaluations look at, as those of ImageNet do.
inline constexpr double kMiddleShare = 224.0 / 256;

/// The image without anything random, for evaluations: the square in its middle whose side is kMiddleShare of the
/// image's shorter side, resized to fp32 [3, size, size] and normalised. Throws as crops_of().
at::Tensor middle_crop(const data::format::Image& image, std::int64_t size);

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
