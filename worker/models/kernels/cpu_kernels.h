#pragma once

#include <cstdint>

#include "worker/models/kernels/kernels.h"

// Kernels of models on the CPU, for fp32 and bf16. Arithmetic is in fp32. A call computes its rows on the calling
// thread; callers give each thread rows of its own. A row's bits do not depend on the other rows, and machines with and
// without AVX-512 may differ in the last bit. cpu_kernels.cpp reads no header of LibTorch, because it is compiled with
// flags of its own.
namespace worker::kernels::cpu {

/// Rotates the heads of the tokens [begin, end), as the kernel of GPUs does for all tokens.
void rotate(Number type, const Rows& x, const void* cos, const void* sin, const Rows& out, const RotationSizes& sizes,
            std::int64_t begin, std::int64_t end);

/// out = silu(gate) * up. Rows of gate and up have `columns` elements and start `stride` elements after each other;
/// those of out are dense. exp() has a relative error below 2e-7.
void swiglu(Number type, const void* gate, const void* up, void* out, std::int64_t rows, std::int64_t columns,
            std::int64_t stride);

/// The gradients of swiglu by gate and up, with their stride, from that by out.
void swiglu_backward(Number type, const void* of_out, const void* gate, const void* up, void* of_gate, void* of_up,
                     std::int64_t rows, std::int64_t columns, std::int64_t stride);

/// RMS norm of dense rows of x, or of x + residual: out = x / rms * weight, with rms^2 = mean(x^2) + eps.
struct NormForward {
  const void* x = nullptr;
  const void* residual = nullptr;  // null: none
  void* sum = nullptr;             // x + residual, rounded to their dtype; null without a residual
  const float* weight = nullptr;   // [columns]
  void* out = nullptr;
  float* inverse = nullptr;  // [rows]: 1 / rms
  std::int64_t rows = 0, columns = 0;
  double eps = 0;
};
void rms_norm(Number type, const NormForward& norm);

/// The gradients of rms_norm by its input and by its weight.
struct NormBackward {
  const void* of_out = nullptr;
  const void* of_sum = nullptr;  // added to that of the input; null: none
  const void* x = nullptr;       // the input of the norm
  const float* weight = nullptr;
  const float* inverse = nullptr;
  void* of_x = nullptr;        // null: not wanted
  float* of_weight = nullptr;  // [columns], overwritten by the sum over the rows; null: not wanted
  std::int64_t rows = 0, columns = 0;
};
void rms_norm_backward(Number type, const NormBackward& norm);

/// The cross entropies of fp32 scores and their gradients, as the kernel of GPUs computes them. A target outside of [0,
/// vocab) is the caller's mistake.
void cross_entropy(float* scores, const std::int64_t* targets, float* losses, std::int64_t rows, std::int64_t vocab,
                   std::int64_t ignored, bool gradient);

}  // namespace worker::kernels::cpu
