#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>

#include "worker/train/step_measures.h"

namespace worker {

/// What LibTorch's allocator of that GPU says. Nothing on the CPU.
std::optional<GpuMemory> gpu_memory(c10::Device device);

/// Bytes of that GPU's memory, in use or not. Nothing on the CPU.
std::optional<std::int64_t> gpu_size(c10::Device device);

/// Sets LibTorch up for GPUs: segments that expand, so that memory does not fragment, unless the environment sets
/// PYTORCH_ALLOC_CONF or PYTORCH_CUDA_ALLOC_CONF. Call it before the first tensor on a GPU.
void set_up_gpus();

/// Throws when this rank was given GPUs by CUDA_VISIBLE_DEVICES and would train on the CPU: base::UsageError when the
/// program is built without CUDA, std::runtime_error with CUDA's own reason when CUDA finds no GPU here.
void refuse_cpu_instead_of_gpus(c10::Device device);

}  // namespace worker
