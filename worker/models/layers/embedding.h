#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>

namespace worker {

/// Looks up rows of a table.
class Embedding : public torch::nn::Module {
 public:
  Embedding(std::int64_t count, std::int64_t size);
  /// int64 ids [..] -> [.., size].
  at::Tensor forward(const at::Tensor& ids) const;

  at::Tensor weight;  ///< [count, size]
};

}  // namespace worker
