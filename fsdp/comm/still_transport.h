#pragma once
#include <memory>

#include "fsdp/comm/transport.h"

namespace fsdp {

/// Whose buffers a still transport has, for those who measure memory.
enum class StillBuffers {
  kNone,          ///< as NCCL, whose own buffers are no tensors
  kSharedMemory,  ///< an all-reduce shows its peers a copy of the tensor
  kSockets        ///< reductions receive the parts of their peers
};

/// A transport that moves nothing: one process stands for one rank of any world, to plan or to measure. Every
/// collective ends at once. A reduce-scatter gives this rank's own first part, and all else stays as it was. `rank` and
/// `world_size` are those of the group.
///
///   fsdp::DeviceMesh mesh(rank, 4096, [](const fsdp::MeshGroup& group) {
///     return fsdp::make_still_transport(group.rank, group.size);
///   });
std::unique_ptr<Transport> make_still_transport(int rank, int world_size, StillBuffers buffers = StillBuffers::kNone);

}  // namespace fsdp
