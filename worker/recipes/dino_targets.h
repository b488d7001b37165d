#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

// What a teacher's answers become before a student learns them: shares of prototypes (Caron et al., "Emerging
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

}  // namespace worker
