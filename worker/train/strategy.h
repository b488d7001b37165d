#pragma once

#include "fsdp/device_mesh.h"
#include "fsdp/unit.h"
#include "rank/environment.h"
#include "train/config.h"

namespace worker {

/// The mesh that "fsdp" asks for: the axes along which "fsdp.strategy" spreads the ranks of an attempt, and
/// "fsdp.shared_memory". Throws UsageError where the ranks do not divide into groups, naming key, value and remedy.
fsdp::MeshOptions mesh_options(const schema::Sharding& sharding, const RankEnvironment& environment);

/// The dtype that "train.precision" computes in.
at::ScalarType dtype_of(schema::Precision precision);

/// The engine's options for the run's units, from "train.precision" and "fsdp".
fsdp::ShardOptions shard_options(const RunConfig& config);

}  // namespace worker
