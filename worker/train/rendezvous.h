#pragma once

#include <memory>

#include "agent/rank/environment.h"
#include "agent/rank/reporter.h"
#include "fsdp/comm/device_mesh.h"

namespace worker {

/// Connects all ranks of the attempt. Rank 0 serves the store: at MASTER_ADDR:MASTER_PORT, or at any free port when the
/// reporter passes the address on. The ranks compute on GPUs, or all on the CPU when no GPU is visible or the build is
/// without CUDA. Collective. A line of the log names ranks that have not come for ten seconds. Throws c10::Error or
/// std::runtime_error when the other ranks do not come in time, at once when one that has come is gone, and when only
/// some ranks have a GPU. Of `options` the axes and shared_memory count.
std::unique_ptr<fsdp::DeviceMesh> meet(const agent::rank::RankEnvironment& environment, agent::rank::Reporter& reporter,
                                       fsdp::MeshOptions options);

}  // namespace worker
