#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace worker {

// [Note: gradients in place] Autograd makes a weight's gradient in memory of its own and then adds it to the one that
// is there: a temporary of the weight's size, written and read once more. The functions below let the product itself
// add to weight.grad(), where a gradient of the same dtype is there already. An engine that keeps gradients in memory
// of its own says where a first gradient belongs, and then the product is written there. So an engine gets gradients
// without a copy, nothing is cleared first, and a second micro-batch needs no temporary. Megatron-LM calls this
// gradient accumulation fusion. In every other case they do what LibTorch's own functions do.

/// Says where the first gradient of a parameter belongs. An undefined tensor: nowhere now. Null: no engine looks after
/// the parameter.
using GradientPlaces = std::optional<at::Tensor> (*)(const at::Tensor& parameter);

/// Of the engine that trains the models, for the whole process. Null takes it away.
void use_gradient_places(GradientPlaces places);

/// Where a backward that runs now may put a gradient.
struct GradientTarget {
  at::Tensor memory;  // of the parameter's shape and dtype; undefined: the gradient must be returned
  bool is_fresh =
      false;  // The values are unknown: write all of them, and then set the memory as parameter.mutable_grad().
};

/// A place, or parameter.grad() to add to. Neither where the dtypes differ, a hook waits for the gradient, or
/// create_graph or torch::autograd::grad() asks for it. A place that was handed out must be filled.
GradientTarget gradient_target(const at::Tensor& parameter);

/// x W^T + b: x is [.., in] with at least two dims, weight W is [out, in], bias b is [out] or undefined for none, the
/// result is [.., out]. See [Note: gradients in place].
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

/// Rows of a table: weight is [count, size], ids are int64 [..], the result is [.., size]. In place, the gradient costs
/// the rows that were looked up and not the whole table. See [Note: gradients in place].
at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids);

}  // namespace worker
