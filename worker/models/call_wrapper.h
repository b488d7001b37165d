#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace worker {

/// A part of a model as a function of its one differentiable input.
using Forward = std::function<at::Tensor(at::Tensor input)>;

/// How a part of a model is called. Whoever owns the call (a sharding unit, activation checkpointing) may do things
/// before and after, call `forward` again during backward, or nest another wrapper; it must return what `forward` does.
using CallWrapper = std::function<at::Tensor(at::Tensor input, const Forward& forward)>;

/// The default: just calls.
inline at::Tensor call_directly(at::Tensor input, const Forward& forward) {
  return forward(std::move(input));
}

}  // namespace worker
