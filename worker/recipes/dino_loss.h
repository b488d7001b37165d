#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

// The losses of self-distillation with two global crops and some local ones of each image (Oquab et al., "DINOv2",
// arXiv 2304.07193), as facebookresearch/dinov2 adds them up. A student's answers are [rows, prototypes] as its heads
// give them, and targets are shares of the same shape that sum to 1 in each row; see dino_targets.h. Everything is
// computed in fp32. A loss is a tensor of one number, the mean over the micro-batch, whose gradient goes to the student
// alone. Throws c10::Error naming shapes that do not fit.
namespace worker {

inline constexpr std::int64_t kGlobalCrops = 2;

/// DINO: each local crop learns the targets of both global crops of its image, and each global crop those of the other
/// one. With b images, `global` and `targets` are [2b, prototypes], all first crops before all second ones, and `local`
/// is [local_crops * b, prototypes], crop by crop; undefined for none.
///
/// The cross entropies' means are added up, those of the two global pairs twice, and divided by the number of terms, 2
/// local_crops + 2.
at::Tensor dino_loss(const at::Tensor& global, const at::Tensor& local, const at::Tensor& targets,
                     double student_temperature);

/// iBOT (Zhou et al., arXiv 2111.07832): what the student says of masked patches learns what the teacher says of the
/// same patches unmasked. `weights` is [masked], 1 / (masked patches of the crop) for each patch, so that every crop
/// counts alike; a batch has `crops` of them, with masks or without. Zero where nothing is masked.
at::Tensor ibot_loss(const at::Tensor& student, const at::Tensor& targets, const at::Tensor& weights,
                     std::int64_t crops, double student_temperature);

/// KoLeo (Sablayrolles et al., "Spreading vectors for similarity search", arXiv 1806.03198): -log of the distance from
/// each row to its nearest neighbour, after all rows have length 1. Keeps a batch's features apart. `features` is [2b,
/// hidden]: the crops of one kind are compared with each other, and the two means are added up. Zero for one image,
/// which has no neighbour.
at::Tensor koleo_loss(const at::Tensor& features);

}  // namespace worker
