#include "worker/models/layers/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/softmax.h>
#include <c10/util/Exception.h>

#include <cmath>

#include "worker/models/layers/dropout.h"

namespace worker {
namespace {

at::Tensor attention_by_products(const at::Tensor& q, at::Tensor k, at::Tensor v, const at::Tensor& bias, double scale,
                                 double p, bool training) {
  if (const std::int64_t groups = q.size(1) / k.size(1); groups != 1) {
    k = k.repeat_interleave(groups, 1);
    v = v.repeat_interleave(groups, 1);
  }
  at::Tensor scores = q.matmul(k.transpose(-2, -1));
  if (scale != 1) scores = scores * scale;
  const at::Tensor shares = at::softmax(scores + bias, -1, at::kFloat).to(q.scalar_type());
  return drop_out(shares, p, training).matmul(v);
}

}  // namespace

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask,
                     std::optional<double> scale, double dropout, bool training) {
  TORCH_CHECK(!(mask.causal && mask.bias.defined()), "attention: the mask is causal and has a bias; want one of them");
  if (mask.bias.defined() && mask.bias.requires_grad()) {
    return attention_by_products(q, k, v, mask.bias, scale.value_or(1 / std::sqrt(static_cast<double>(q.size(-1)))),
                                 dropout, training);
  }
  const auto bias = mask.bias.defined() ? std::optional<at::Tensor>(mask.bias) : std::nullopt;
  return at::scaled_dot_product_attention(q, k, v, bias, training ? dropout : 0.0, mask.causal, scale,
                                          /*enable_gqa=*/k.size(1) != q.size(1));
}

}  // namespace worker
