#pragma once
#include <ATen/core/Tensor.h>

namespace fsdp {

/// The state of the CPU's default generator, a uint8 tensor: what a checkpoint keeps to repeat dropout and sampling.
at::Tensor cpu_random_state();
/// Puts it back; throws c10::Error when `state` is none.
void set_cpu_random_state(const at::Tensor& state);

}  // namespace fsdp
