#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace fsdp {

/// The state of a device's default generator, a uint8 tensor on the CPU. With it dropout and sampling repeat.
at::Tensor random_state(at::Device device = at::kCPU);
/// Restores the state of a device's default generator. Throws c10::Error when `state` is no such state.
void set_random_state(const at::Tensor& state, at::Device device = at::kCPU);

}  // namespace fsdp
