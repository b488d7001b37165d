#pragma once

#include <memory>
#include <string>
#include <utility>

#include "agent/rank/environment.h"
#include "fsdp/comm/device_mesh.h"
#include "fsdp/engine/gradient_place.h"
#include "fsdp/engine/kept_results.h"
#include "fsdp/engine/recompute.h"
#include "fsdp/engine/unit.h"
#include "fsdp/engine/wrap.h"
#include "worker/models/layers/layers.h"
#include "worker/models/ops.h"
#include "worker/train/train_config.h"

// Wrappers for the work that the engine does around a call of a model's part.
namespace worker {

/// A sharding unit as a wrapper. From now on the models' functions write gradients to where the engine wants them.
inline CallWrapper wrapper_of(std::shared_ptr<fsdp::Unit> unit) {
  use_gradient_places(&fsdp::place_of_gradient);
  return [unit = std::move(unit)](Tensors inputs, const Forward& forward) {
    return unit->run_list(std::move(inputs), forward);
  };
}

/// Activation checkpointing as a wrapper. `module` owns the wrapper, or what owns it. From now on the models'
/// operations ask the engine whether their results are kept.
inline CallWrapper recomputing(const torch::nn::Module& module, fsdp::RecomputeOptions options = {}) {
  static constexpr ActivationCheckpoint kOfEngine{&fsdp::KeptResults::keeps, &fsdp::KeptResults::of};
  use_activation_checkpoint(&kOfEngine);
  return [&module, options = std::move(options)](Tensors inputs, const Forward& forward) {
    return fsdp::recompute(std::move(inputs), forward, module, options);
  };
}

/// The mesh that "fsdp" asks for: the axes along which "fsdp.strategy" spreads the ranks of an attempt,
/// "fsdp.shared_memory" and "fsdp.separate_reductions". Throws base::UsageError where the ranks do not divide into
/// groups, naming key, value and remedy.
fsdp::MeshOptions mesh_options(const spec::Sharding& sharding, const agent::rank::RankEnvironment& environment);

/// Why a "fsdp.separate_reductions" that is set changes nothing, for people; empty: it does, or is not set.
/// `over_nccl`: ranks communicate over NCCL.
std::string separate_reductions_without_effect(const spec::Sharding& sharding, int shard_ranks, bool over_nccl);

/// The dtype that "train.precision" computes in.
at::ScalarType dtype_of(spec::Precision precision);

/// How long gathered weights stay, by a strategy: the members of `options` that say so. The root's are kept from
/// forward to backward anyway.
void apply_strategy(spec::Strategy strategy, const spec::Sharding& sharding, fsdp::ShardOptions& options);

/// In which format parameters are gathered and compute. With `fp32_norms` those of norms stay in fp32.
void set_param_dtype(at::ScalarType dtype, bool fp32_norms, fsdp::Precision& precision);

/// The engine's options for the run's units, from "train.precision" and "fsdp".
fsdp::ShardOptions shard_options(const RunConfig& config);

/// Which modules become units: Blocks and OuterParts (worker/models/layers/layers.h), or those of them that are large
/// enough, or the root alone.
fsdp::WrapPolicy wrap_policy(const spec::Sharding& sharding);

/// The options of a unit, from those of the run's units: a model's first and last part take less memory and traffic
/// than others could.
fsdp::ShardOptions options_of_part(const torch::nn::Module& module, fsdp::ShardOptions options);

/// Checks what depends on the place of a run: `shard_ranks` is over how many ranks weights are spread. Throws
/// base::UsageError for an "fsdp.reshard_to_ranks" that is no proper divisor of it, and for "fsdp.offload" and
/// "fsdp.activation_offload" on a CPU.
void check_sharding(const spec::Sharding& sharding, int shard_ranks, c10::Device device);

}  // namespace worker
