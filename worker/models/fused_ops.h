#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace worker {

// Functions that are chains of elementwise operations in LibTorch, each of which reads and writes whole tensors. Builds
// with CUDA and its compiler have one kernel for a chain (worker/models/kernels/kernels.cu), which computes in fp32
// and rounds once. Everywhere else, and in a backward that is differentiated again, LibTorch's operations are called.

/// The angles of rotary position embedding, as worker/models/layers/attention.h makes them. Both halves of a row are
/// equal.
struct RopeTable {
  at::Tensor cos, sin;  ///< [positions, dim], or [batch, positions, dim] where rows have positions of their own
};

/// Rotary position embedding (Su et al., arXiv 2104.09864) as in Hugging Face's Llama and GPT-NeoX: rotates elements i
/// and i + dim / 2 of each head by the angle of their position. Elements from dim on stay. x is [batch, positions,
/// heads, head_dim] of the table's dtype, and dim <= head_dim. The kernel takes tables of [positions, dim].
at::Tensor apply_rope(const at::Tensor& x, const RopeTable& table);

/// silu(gate) * up (SwiGLU, Shazeer, arXiv 2002.05202), elementwise over equal shapes.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

/// True if tensors of that device and dtype take the kernels.
bool has_kernels(at::Device device, at::ScalarType dtype);

}  // namespace worker
