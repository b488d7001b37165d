#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include "worker/models/kernels/kernels.h"

namespace worker::kernels {

inline Number number_of(const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kHalf) return Number::kHalf;
  return tensor.scalar_type() == at::kBFloat16 ? Number::kBFloat16 : Number::kFloat;
}

/// The current stream of the tensor's device, as kernels take it.
inline void* stream_of(const at::Tensor& tensor) {
  return c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
}

}  // namespace worker::kernels
