#pragma once
#include <c10/core/Device.h>

#include <array>
#include <cstdint>

namespace fsdp {

/// Bytes that tell a GPU from every other GPU of the world: CUDA's UUID, whatever number the GPU has in this process.
std::array<std::uint8_t, 16> gpu_identity(c10::Device device);

}  // namespace fsdp
