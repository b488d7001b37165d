#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>

namespace worker {

/// x / rms(x) * weight over the last dim (Zhang and Sennrich, 2019), computed in fp32 and then cast to x's type.
class RmsNorm : public torch::nn::Module {
 public:
  RmsNorm(std::int64_t size, double eps);
  at::Tensor forward(const at::Tensor& x) const;

  at::Tensor weight;  ///< [size]

 private:
  double eps_;
};

/// (x - mean(x)) / sqrt(var(x) + eps) * weight + bias over the last dim (Ba et al., arXiv 1607.06450). Mean and
/// variance are computed in fp32.
class LayerNorm : public torch::nn::Module {
 public:
  LayerNorm(std::int64_t size, double eps);
  at::Tensor forward(const at::Tensor& x) const;

  at::Tensor weight, bias;  ///< [size]

 private:
  double eps_;
};

}  // namespace worker
