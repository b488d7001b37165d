#pragma once

#include <ATen/core/Tensor.h>

namespace worker {

/// Mean cross entropy a token, in nats and fp32: logits [batch, positions, vocab], targets int64 [batch, positions]
/// that already hold the token *after* each position.
at::Tensor token_cross_entropy(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace worker
