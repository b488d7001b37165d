#pragma once
#include <ATen/core/Tensor.h>

namespace fsdp {

/// The state of the CPU's default generator, a uint8 tensor. A checkpoint keeps it, so that dropout and sampling
/// repeat.
at::Tensor cpu_random_state();
/// Restores the state of the CPU's default generator. Throws c10::Error when `state` is no such state.
void set_cpu_random_state(const at::Tensor& state);

}  // namespace fsdp
