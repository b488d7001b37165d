#pragma once

#include <cstdint>

#include "worker/models/kernels/number.h"

namespace worker::kernels {

/// The cross entropy of each row of `scores` [rows, vocab] against its target, in nats, into `losses` fp32 [rows]. With
/// `gradient` the scores are overwritten by the losses' gradients, softmax(scores) - onehot(target). A row whose target
/// is `ignored` has loss and gradient 0. Another target outside of [0, vocab) stops the program, as LibTorch's
/// operations on a GPU do. Pointers are of the GPU's memory, `stream` is a cudaStream_t. Starts the kernel and returns;
/// cudaGetLastError() tells whether it has started.
void cross_entropy(Number type, void* scores, const std::int64_t* targets, float* losses, std::int64_t rows,
                   std::int64_t vocab, std::int64_t ignored, bool gradient, void* stream);

}  // namespace worker::kernels
