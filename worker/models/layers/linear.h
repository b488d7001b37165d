#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

namespace worker {

/// What is multiplied: x W^T.
struct Factors {
  at::Tensor x;       ///< [.., in]
  at::Tensor weight;  ///< W [out, in]
};

/// x W^T + b, without b by default.
class Linear : public torch::nn::Module {
 public:
  Linear(std::int64_t in, std::int64_t out, bool has_bias = false);
  /// [.., in] -> [.., out].
  at::Tensor forward(const at::Tensor& x) const;

  /// The factors of forward(x) without b, for functions that take a weight. With an adapter x has its `rank` more
  /// columns, and W is a copy with B beside it.
  Factors factors(const at::Tensor& x) const;

  /// Adds a low-rank adapter (Hu et al., LoRA, arXiv 2106.09685): the result gets `scale` * B A drop_out(x) added. A is
  /// the parameter `lora_A.weight` [rank, in] and B is `lora_B.weight` [out, rank], as PEFT names them. The adapter
  /// changes nothing as long as B is zero. `dropout` is the share of x's elements that training sets to zero for A.
  /// Call it once, before the module is sharded. Throws c10::Error for a rank below 1 and for a second adapter.
  void add_adapter(std::int64_t rank, double scale, double dropout);

  at::Tensor weight;  ///< [out, in]
  at::Tensor bias;    ///< [out]; undefined without one

 private:
  /// scale * A drop_out(x): [.., in] -> [.., rank].
  at::Tensor adapted(const at::Tensor& x) const;

  std::shared_ptr<Linear> lora_a_, lora_b_;  // null without an adapter
  double lora_scale_ = 0, lora_dropout_ = 0;
};

}  // namespace worker
