#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace fsdp {

/// The state of a device's default generator, a uint8 tensor on the CPU. With it dropout and sampling repeat.
at::Tensor random_state(at::Device device = at::kCPU);
/// Restores the state of a device's default generator. Throws c10::Error when `state` is no such state.
void set_random_state(const at::Tensor& state, at::Device device = at::kCPU);

/// While one lives, work of `device` goes into a graph, and the state of the device's generator cannot be read.
class RandomInGraph {
 public:
  /// `draws`: the work draws random numbers there.
  RandomInGraph(at::Device device, bool draws);
  ~RandomInGraph();
  RandomInGraph(const RandomInGraph&) = delete;
  RandomInGraph& operator=(const RandomInGraph&) = delete;
};
/// True if whoever repeats work must bring back the state of the device's generator. False: in a graph, nothing draws
/// from the generator. Throws c10::Error where the state is needed in a graph.
bool must_restore_random(at::Device device);

/// Lets equal computations of this process have equal bits, on GPUs too: LibTorch's deterministic algorithms, among
/// them the gradients of embedding and attention, no search for the fastest convolution, and a workspace of cuBLAS that
/// makes its sums repeatable. Later, an operation without a deterministic algorithm throws c10::Error with its name.
///
/// Call it before the first computation on a GPU, because cuBLAS reads CUBLAS_WORKSPACE_CONFIG once. The variable is
/// kept if it is set; throws c10::Error if its value is none that is deterministic. It may be called again.
void compute_deterministically();

}  // namespace fsdp
