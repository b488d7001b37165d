#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

namespace worker {

/// A parameter without values, in fp32. Its owner draws or loads them.
inline at::Tensor uninitialised(at::IntArrayRef shape) {
  return at::empty(shape, at::kFloat);
}

}  // namespace worker
