#pragma once

namespace fsdp {

/// Lets equal computations of this process have equal bits, on GPUs too: LibTorch's deterministic algorithms, among
/// them the gradients of embedding and attention, no search for the fastest convolution, and a workspace of cuBLAS that
/// makes its sums repeatable. Later, an operation without a deterministic algorithm throws c10::Error with its name.
///
/// Call it before the first computation on a GPU, because cuBLAS reads CUBLAS_WORKSPACE_CONFIG once. The variable is
/// kept if it is set; throws c10::Error if its value is none that is deterministic. It may be called again.
void compute_deterministically();

}  // namespace fsdp
