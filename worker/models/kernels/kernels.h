#pragma once

#include <cstdint>

// Kernels of models on GPUs. Pointers are of the GPU's memory, `stream` is a cudaStream_t.
// Arithmetic is in fp32. They start the kernel and return; cudaGetLastError() tells whether it has started.
namespace worker::kernels {

/// The dtype of a kernel's tensors.
enum class Number { kFloat, kHalf, kBFloat16 };

/// Rows of heads [batch, positions, heads, ..]: the first element, and how many elements lie between neighbours.
struct Rows {
  void* first = nullptr;
  std::int64_t of_batch = 0, of_position = 0, of_head = 0;
};
struct RotationSizes {
  std::int64_t batch = 0, positions = 0, heads = 0, half = 0;
  std::int64_t table_rows = 0;  // positions, or batch * positions where each row of the batch has angles of its own
  bool inverse = false;         // rotates back
};

/// Rotates pairs (i, i + half) of each head's elements. cos and sin are [table_rows, 2 * half], each half equal to the
/// other. x is only read.
void rotate(Number type, const Rows& x, const void* cos, const void* sin, const Rows& out, const RotationSizes& sizes,
            void* stream);

/// out = silu(gate) * up. Rows of gate and up have `columns` elements and start `stride` elements after each other;
/// those of out are dense.
void swiglu(Number type, const void* gate, const void* up, void* out, std::int64_t rows, std::int64_t columns,
            std::int64_t stride, void* stream);

/// The gradients of swiglu by gate and up, with their stride, from that by out.
void swiglu_backward(Number type, const void* of_out, const void* gate, const void* up, void* of_gate, void* of_up,
                     std::int64_t rows, std::int64_t columns, std::int64_t stride, void* stream);

/// The cross entropy of each row of `scores` [rows, vocab] against its target, in nats, into `losses` fp32 [rows]. With
/// `gradient` the scores are overwritten by the losses' gradients, softmax(scores) - onehot(target). A row whose target
/// is `ignored` has loss and gradient 0. Another target outside of [0, vocab) stops the program, as LibTorch's
/// operations on a GPU do.
void cross_entropy(Number type, void* scores, const std::int64_t* targets, float* losses, std::int64_t rows,
                   std::int64_t vocab, std::int64_t ignored, bool gradient, void* stream);

}  // namespace worker::kernels
