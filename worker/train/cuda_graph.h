#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>

#include "fsdp/comm/device_mesh.h"
#include "fsdp/optim/step_graph.h"
#include "worker/train/config.h"

namespace worker {

/// Why this run has no graph of its steps, with what to change; empty: it may have one. `shares_gpus`: as
/// DeviceMesh::shares_gpus().
std::string why_no_cuda_graph(const RunConfig& config, c10::Device device, bool shares_gpus);

/// The graph for train.cuda_graph, or null without the key. Throws base::UsageError where a graph cannot hold the run's
/// steps. `recipe` says why its batches have no fixed shapes; empty: they have.
std::unique_ptr<fsdp::DeviceGraph> cuda_graph_of(const RunConfig& config, const fsdp::DeviceMesh& mesh,
                                                 const std::string& recipe);

}  // namespace worker
