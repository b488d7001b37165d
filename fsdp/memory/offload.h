#pragma once
#include <c10/core/Device.h>

#include <compare>

namespace fsdp {

/// Where a unit keeps what it has between steps. Every rank must pass the same value, and all units of a model too.
///
/// A model on a GPU that does not fit trains with to_cpu: parameters, reduced gradients and optimizer states lie in the
/// CPU's memory, and the optimizer runs there. The GPU holds gathered parameters and unreduced gradients alone. A
/// gather copies the shard to the device first; a reduction copies its result back. The optimizer's step waits for the
/// device once. As CPUOffloadPolicy of PyTorch's FSDP2.
///
/// A model on the CPU makes the same copies, within one memory: of no use but for tests.
struct Offload {
  bool to_cpu = false;
  /// Locks the pages of parameters and gradients, so that copies run beside the computation. Set it to false where
  /// locked memory is short. Only for models on a GPU.
  bool pin_memory = true;

  /// Where the shards of a model on `device` live.
  c10::Device home(c10::Device device) const { return to_cpu ? c10::Device(c10::kCPU) : device; }
  auto operator<=>(const Offload&) const = default;
};

}  // namespace fsdp
