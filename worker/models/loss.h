#pragma once

#include <ATen/core/Tensor.h>

namespace worker {

/// Sum of the tokens' cross entropies, in nats and fp32. `logits` is [batch, positions, vocab]. `targets` is int64
/// [batch, positions] and holds the token *after* each position.
at::Tensor token_cross_entropy(const at::Tensor& logits, const at::Tensor& targets);

}  // namespace worker
