#include "fsdp/comm/gpu_identity.h"

#include <ATen/cuda/CUDAContext.h>

#include <cstring>

namespace fsdp {

std::array<std::uint8_t, 16> gpu_identity(c10::Device device) {
  const cudaDeviceProp* properties = at::cuda::getDeviceProperties(device.index());
  std::array<std::uint8_t, 16> out{};
  static_assert(sizeof properties->uuid == sizeof out);
  std::memcpy(out.data(), &properties->uuid, sizeof out);
  return out;
}

}  // namespace fsdp
