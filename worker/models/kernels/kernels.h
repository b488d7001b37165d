#pragma once

#include <cstdint>

// Kernels of models. Pointers are of the GPU's memory, `stream` is a cudaStream_t.
// Arithmetic is in fp32. They start the kernel and return; cudaGetLastError() tells whether it has started.
namespace worker::kernels {

/// The dtype of a kernel's tensors.
enum class Number { kFloat, kHalf, kBFloat16 };

/// Rotates pairs (i, i + half) of each row: x and out are [rows, 2 * half], and row r is of position
/// (r / heads) % positions. cos and sin are [positions, 2 * half], each half equal to the other. `inverse` rotates
/// back.
void rotate(Number type, const void* x, const void* cos, const void* sin, void* out, std::int64_t rows,
            std::int64_t heads, std::int64_t positions, std::int64_t half, bool inverse, void* stream);

/// out = silu(gate) * up, elementwise over `count` elements.
void swiglu(Number type, const void* gate, const void* up, void* out, std::int64_t count, void* stream);

/// The gradients of swiglu by gate and up, from that by out.
void swiglu_backward(Number type, const void* of_out, const void* gate, const void* up, void* of_gate, void* of_up,
                     std::int64_t count, void* stream);

/// The cross entropy of each row of `scores` [rows, vocab] against its target, in nats, into `losses` fp32 [rows]. With
/// `gradient` the scores are overwritten by the losses' gradients, softmax(scores) - onehot(target). A row whose target
/// is `ignored` has loss and gradient 0. Another target outside of [0, vocab) stops the program, as LibTorch's
/// operations on a GPU do.
void cross_entropy(Number type, void* scores, const std::int64_t* targets, float* losses, std::int64_t rows,
                   std::int64_t vocab, std::int64_t ignored, bool gradient, void* stream);

}  // namespace worker::kernels
