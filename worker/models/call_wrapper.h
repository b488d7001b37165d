#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace worker {

/// A part of a model as a function of a single differentiable input.
using Forward = std::function<at::Tensor(at::Tensor input)>;

/// How a part of a model is called. The owner of the call (a sharding unit, activation checkpointing) may act before
/// and after, may call `forward` again during backward, and may nest another wrapper. The wrapper must return what
/// `forward` returns.
using CallWrapper = std::function<at::Tensor(at::Tensor input, const Forward& forward)>;

/// The default wrapper: calls `forward` and does nothing else.
inline at::Tensor call_directly(at::Tensor input, const Forward& forward) {
  return forward(std::move(input));
}

}  // namespace worker
