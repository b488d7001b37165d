#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "worker/models/layers/masks.h"

namespace worker {

/// softmax(q k^T * scale + mask) v (Vaswani et al., 2017) with grouped key/value heads (Ainslie et al., GQA): query
/// head h reads key/value head h / (H / G). q is [batch, H, queries, d], k and v are [batch, G, keys, d], and G divides
/// H. The result is [batch, H, queries, d].
///
/// Without a `scale` it is 1 / sqrt(d). `dropout` is the share of the probabilities that training sets to zero.
///
/// LibTorch's scaled_dot_product_attention() computes it. A mask that needs a gradient takes plain products instead,
/// with a softmax in fp32, because the fused operation gives masks none: memory then holds the scores of all heads.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask,
                     std::optional<double> scale, double dropout, bool training);

}  // namespace worker
