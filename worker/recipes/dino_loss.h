#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

// Targets that a teacher's answers become before a student learns them: shares of prototypes (Caron et al., "Emerging
// Properties in Self-Supervised Vision Transformers", arXiv 2104.14294; Oquab et al., "DINOv2", arXiv 2304.07193).
// Everything is computed in fp32, whatever the precision of the answers, and nothing is recorded for gradients.
//
// Answers are [rows, prototypes], a row for each class token or masked patch of this rank's micro-batch. Ranks may have
// different numbers of rows, even none.
namespace worker {

/// Sums, or takes the maximum, over the ranks in place. Collective: every rank calls it with a tensor of the same
/// shape, fp32 on the model's device.
using ReduceOverRanks = std::function<void(at::Tensor& values)>;

/// For one rank alone.
inline void over_one_rank(at::Tensor& /*values*/) {}

/// softmax((answers - centre) / temperature): [rows, prototypes]. `centre` is [1, prototypes]. Not collective.
at::Tensor centred_softmax(const at::Tensor& answers, const at::Tensor& centre, double temperature);

/// The centre after a batch: momentum * centre + (1 - momentum) * the mean of all ranks' rows. A batch is centred with
/// the centre before it, so call this afterwards. Without a row on any rank the centre stays. One call of `sum`.
at::Tensor updated_centre(const at::Tensor& centre, const at::Tensor& answers, double momentum,
                          const ReduceOverRanks& sum);

/// Sinkhorn-Knopp (Cuturi, 2013; Caron et al., SwAV, arXiv 2006.09882): exp(answers / temperature), scaled in turns so
/// that all prototypes get equally much of all ranks' rows, and that each row sums to 1, `rounds` times: [rows,
/// prototypes]. One call of `max` for the largest answer of all, so that nothing overflows, and `rounds` of `sum` with
/// [prototypes] values. A prototype whose answers are all too small for fp32 gets nothing.
at::Tensor sinkhorn_knopp(const at::Tensor& answers, double temperature, std::int64_t rounds,
                          const ReduceOverRanks& sum, const ReduceOverRanks& max);

// The losses of self-distillation with two global crops and some local ones of each image (Oquab et al., "DINOv2",
// arXiv 2304.07193), as facebookresearch/dinov2 adds them up. A student's answers are [rows, prototypes] as its heads
// give them, and targets are shares of the same shape that sum to 1 in each row. Everything is
// computed in fp32. A loss is a tensor of one number, the mean over the micro-batch, whose gradient goes to the student
// alone. Throws c10::Error naming shapes that do not fit.

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
