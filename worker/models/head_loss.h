#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "data/order/order.h"

namespace worker {

/// The most elements of logits that linear_cross_entropy() holds at once. A GPU needs large products to be busy.
inline constexpr std::int64_t kMostLogits = std::int64_t{1} << 22, kMostLogitsOnGpu = std::int64_t{1} << 26;

/// Sum over all positions of the cross entropy of softmax(x W^T + b) against `targets`, in nats, an fp32 scalar. `x` is
/// [.., hidden], `weight` W is [vocab, hidden] in x's type, `bias` b is [vocab] in x's type or undefined for none, and
/// `targets` is int64 [..] and holds the token *after* each position, or kNoTarget.
///
/// The logits of a few positions exist at a time, at most `most_logits` elements or one position (0: the constants
/// above). They are in fp32, or with kernels on a GPU in x's type, which kernels read and write in fp32. The gradients
/// are computed beside them in the forward pass, as in Liger Kernel's fused linear cross entropy (Hsu et al., 2024):
/// memory holds one chunk of logits instead of four copies of all. The gradients of W and b are summed in fp32. There
/// is no second derivative.
at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                                const at::Tensor& bias = {}, std::int64_t most_logits = 0);

/// The sum over a batch of the cross entropy of softmax(logits) against the labels, each times the weight of its label,
/// in nats: an fp32 scalar. `logits` are [batch, classes] of any precision, `labels` int64 [batch], and a label
/// kNoTarget counts for nothing. `class_weights` are fp32 [classes] on the same device, or undefined: 1 each.
/// class_loss() / class_weight() is the mean that torch.nn.CrossEntropyLoss(weight) gives.
at::Tensor class_loss(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& class_weights = {});

/// The sum of the weights of the labels that count. Both tensors are on the CPU. Throws c10::Error naming a label that
/// has no weight.
double class_weight(const at::Tensor& labels, const at::Tensor& class_weights = {});

}  // namespace worker
