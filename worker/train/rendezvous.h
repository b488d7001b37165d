#pragma once

#include <memory>

#include "fsdp/device_mesh.h"
#include "rank/environment.h"
#include "rank/reporter.h"

namespace worker {

/// Brings all ranks of the attempt together. Rank 0 serves the store: at MASTER_ADDR:MASTER_PORT, or at any free port
/// when the reporter hands its address out. They compute on GPUs, or all on the CPU where none is visible or the build
/// is without CUDA. Collective; throws c10::Error or std::runtime_error when the others do not come in time, or when
/// only some ranks have a GPU.
std::unique_ptr<fsdp::DeviceMesh> meet(const RankEnvironment& environment, Reporter& reporter);

}  // namespace worker
