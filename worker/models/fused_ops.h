#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <utility>

namespace worker {

// Functions that are chains of elementwise operations in LibTorch, each of which reads and writes whole tensors. Here a
// chain is one kernel, which computes in fp32 and rounds once: on the CPU (worker/models/kernels/cpu_kernels.cpp), and
// on GPUs in builds with CUDA and its compiler (worker/models/kernels/kernels.cu). LibTorch's operations are called
// elsewhere, for other dtypes, and in a backward that is differentiated again. Under a dry run (fsdp::DryRunGuard) the
// kernels of the CPU compute nothing.

/// The angles of rotary position embedding, as worker/models/layers/attention.h makes them. Both halves of a row are
/// equal.
struct RopeTable {
  at::Tensor cos, sin;  ///< [positions, dim], or [batch, positions, dim] where rows have positions of their own
};

/// Rotary position embedding (Su et al., arXiv 2104.09864) as in Hugging Face's Llama and GPT-NeoX: rotates elements i
/// and i + dim / 2 of each head by the angle of their position. Elements from dim on stay. x is [batch, positions,
/// heads, head_dim] of the table's dtype, and dim <= head_dim.
at::Tensor apply_rope(const at::Tensor& x, const RopeTable& table);

/// Queries and keys after apply_rope(), and values: each [batch, positions, its heads, head_dim].
struct SplitHeads {
  at::Tensor q, k, v;
};

/// Splits the results of one product for queries, keys and values, [batch, positions, (heads + 2 * kv_heads) *
/// head_dim], and rotates queries and keys. head_dim is the table's dim.
SplitHeads split_rotated(const at::Tensor& qkv, const RopeTable& table, std::int64_t heads, std::int64_t kv_heads);

/// silu(gate) * up (SwiGLU, Shazeer, arXiv 2002.05202), elementwise over equal shapes.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);
/// That of gate and up side by side in rows: [.., 2 * n] -> [.., n].
at::Tensor swiglu(const at::Tensor& gate_and_up);

/// x / rms(x) * weight over the last dim, with rms(x)^2 = mean(x^2) + eps (Zhang and Sennrich, arXiv 1910.07467).
/// Arithmetic is in fp32. x is [.., n], weight is [n], the result has x's dtype.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

/// A sum of a residual stream, and its norm.
struct Normed {
  at::Tensor sum, norm;
};
/// x and rms_norm(x). Backward adds the gradient of the x that is returned in the norm's own pass, so a residual stream
/// goes on with that x.
Normed rms_norm_beside(const at::Tensor& x, const at::Tensor& weight, double eps);
/// x + residual and the rms_norm() of the sum, for equal shapes and dtypes.
Normed rms_norm_of_sum(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight, double eps);

/// True if tensors of that device and dtype take the kernels of rope and SwiGLU.
bool has_kernels(at::Device device, at::ScalarType dtype);

/// True while operations on memory compute nothing, because sizes alone are asked for (fsdp::DryRunGuard).
bool computes_nothing();

}  // namespace worker
