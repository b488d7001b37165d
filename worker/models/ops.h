#pragma once

#include <ATen/core/Tensor.h>

namespace worker {

// [Note: gradients in place] Autograd makes a weight's gradient in memory of its own and then adds it to the one that
// is there: a temporary of the weight's size, written and read once more. The functions below let the product itself
// add to weight.grad(), where a gradient of the same dtype is there already. So an engine that lays gradients into the
// input of its reduction gets them without a copy, and a second micro-batch needs no temporary. Megatron-LM calls this
// gradient accumulation fusion. In every other case they do what LibTorch's own functions do.

/// Whether a backward that runs now may add to parameter.grad() itself: there is a dense gradient of the same dtype, no
/// hook waits for the sum, and neither create_graph nor torch::autograd::grad() asks for it.
bool adds_in_place(const at::Tensor& parameter);

/// x W^T: x is [.., in], weight W is [out, in], the result is [.., out]. See [Note: gradients in place].
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight);

/// Rows of a table: weight is [count, size], ids are int64 [..], the result is [.., size]. In place, the gradient costs
/// the rows that were looked up and not the whole table. See [Note: gradients in place].
at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids);

}  // namespace worker
