#pragma once

#include <ATen/core/Tensor.h>

namespace worker {

/// The sum over a batch of the cross entropy of softmax(logits) against the labels, each times the weight of its label,
/// in nats: an fp32 scalar. `logits` are [batch, classes] of any precision, `labels` int64 [batch], and a label
/// kNoTarget counts for nothing. `class_weights` are fp32 [classes] on the same device, or undefined: 1 each.
/// class_loss() / class_weight() is the mean that torch.nn.CrossEntropyLoss(weight) gives.
at::Tensor class_loss(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& class_weights = {});

/// The sum of the weights of the labels that count. Both tensors are on the CPU. Throws c10::Error naming a label that
/// has no weight.
double class_weight(const at::Tensor& labels, const at::Tensor& class_weights = {});

}  // namespace worker
