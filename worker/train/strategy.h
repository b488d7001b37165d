#pragma once

#include "agent/rank/environment.h"
#include "fsdp/comm/device_mesh.h"
#include "fsdp/engine/unit.h"
#include "fsdp/engine/wrap.h"
#include "worker/train/config.h"

namespace worker {

/// The mesh that "fsdp" asks for: the axes along which "fsdp.strategy" spreads the ranks of an attempt, and
/// "fsdp.shared_memory". Throws base::UsageError where the ranks do not divide into groups, naming key, value and
/// remedy.
fsdp::MeshOptions mesh_options(const spec::Sharding& sharding, const agent::rank::RankEnvironment& environment);

/// The dtype that "train.precision" computes in.
at::ScalarType dtype_of(spec::Precision precision);

/// How long gathered weights stay, by a strategy: the members of `options` that say so. The root's are kept from
/// forward to backward anyway.
void apply_strategy(spec::Strategy strategy, const spec::Sharding& sharding, fsdp::ShardOptions& options);

/// In which format parameters are gathered and compute. With `fp32_norms` those of norms stay in fp32.
void set_param_dtype(at::ScalarType dtype, bool fp32_norms, fsdp::Precision& precision);

/// The engine's options for the run's units, from "train.precision" and "fsdp".
fsdp::ShardOptions shard_options(const RunConfig& config);

/// Which modules become units: Blocks (worker/models/layers/wrapped.h), or those that are large enough, or the root
/// alone.
fsdp::WrapPolicy wrap_policy(const spec::Sharding& sharding);

/// Checks what depends on the place of a run: `shard_ranks` is over how many ranks weights are spread. Throws
/// base::UsageError for an "fsdp.reshard_to_ranks" that is no proper divisor of it, and for "fsdp.offload" on a CPU.
void check_sharding(const spec::Sharding& sharding, int shard_ranks, c10::Device device);

}  // namespace worker
