#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "fsdp/comm/device_mesh.h"
#include "fsdp/optim/step_graph.h"
#include "worker/train/step_measures.h"
#include "worker/train/train_config.h"

namespace worker {

/// Figures of LibTorch's allocator of that GPU. Nothing on the CPU.
std::optional<GpuMemory> gpu_memory(c10::Device device);

/// Bytes of that GPU's memory, in use or not. Nothing on the CPU.
std::optional<std::int64_t> gpu_size(c10::Device device);

/// Sets LibTorch up for GPUs: segments that expand, so that memory does not fragment, unless the environment sets
/// PYTORCH_ALLOC_CONF or PYTORCH_CUDA_ALLOC_CONF. Call it before the first tensor on a GPU.
void set_up_gpus();

/// Throws when this rank was given GPUs by CUDA_VISIBLE_DEVICES and would train on the CPU: base::UsageError when the
/// program is built without CUDA, std::runtime_error with CUDA's own reason when CUDA finds no GPU here.
void refuse_cpu_instead_of_gpus(c10::Device device);

/// Why this run has no graph of its steps, with what to change; empty: it may have one. `shares_gpus`: as
/// DeviceMesh::shares_gpus().
std::string why_no_cuda_graph(const RunConfig& config, c10::Device device, bool shares_gpus);

/// The graph for train.cuda_graph, or null without the key. Throws base::UsageError where a graph cannot hold the run's
/// steps. `recipe` says why its batches have no fixed shapes; empty: they have.
std::unique_ptr<fsdp::DeviceGraph> cuda_graph_of(const RunConfig& config, const fsdp::DeviceMesh& mesh,
                                                 const std::string& recipe);

}  // namespace worker
