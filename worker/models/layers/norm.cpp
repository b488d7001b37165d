#include "worker/models/layers/norm.h"

#include <ATen/ops/layer_norm.h>
#include <ATen/ops/rms_norm.h>

#include "worker/models/layers/uninitialised.h"

namespace worker {

RmsNorm::RmsNorm(std::int64_t size, double eps)
    : weight(register_parameter("weight", uninitialised({size}))), eps_(eps) {}

at::Tensor RmsNorm::forward(const at::Tensor& x) const {
  return at::rms_norm(x.to(weight.scalar_type()), weight.sizes(), weight, eps_).to(x.scalar_type());
}

LayerNorm::LayerNorm(std::int64_t size, double eps)
    : weight(register_parameter("weight", uninitialised({size}))),
      bias(register_parameter("bias", uninitialised({size}))),
      eps_(eps) {}

at::Tensor LayerNorm::forward(const at::Tensor& x) const {
  return at::layer_norm(x.to(weight.scalar_type()), weight.sizes(), weight, bias, eps_).to(x.scalar_type());
}

}  // namespace worker
