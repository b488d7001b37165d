#pragma once

#include <cstdint>

#include "agent/rank/environment.h"
#include "worker/recipes/registry.h"
#include "worker/train/train_config.h"

namespace worker {

/// Needs of a rank of a training. All ranks need the same in a step, because shards are padded to equal sizes.
struct RankPlan {
  int ranks = 1;
  int local_ranks = 1;  ///< on the rank's node
  BatchSplit split;
  std::int64_t parameter_count = 0;  ///< of the whole model

  // Bytes of tensors at the peak of a step, padding included. Their sum is tensor_bytes().
  std::int64_t parameter_bytes = 0;  ///< this rank's shards: fp32 masters, and frozen parameters
  std::int64_t gradient_bytes = 0;   ///< reduced gradients of these shards
  std::int64_t state_bytes = 0;      ///< of the optimizer
  std::int64_t pool_bytes = 0;  ///< slots for gathered parameters and unreduced gradients, and what collectives receive
  std::int64_t activation_bytes = 0;  ///< all else at the peak: what backward needs of forward, and temporaries

  std::int64_t graph_bytes = 0;  ///< of activation_bytes, those that train.cuda_graph keeps between steps; 0 without
  std::int64_t offloaded_bytes = 0;        ///< of parameters, gradients and states, those on the host: fsdp.offload
  std::int64_t host_activation_bytes = 0;  ///< of activations on the host, beside the above: fsdp.activation_offload
  std::int64_t snapshot_bytes = 0;         ///< the host's copy while an asynchronous checkpoint is written; 0 without
  std::int64_t full_state_bytes = 0;       ///< on rank 0's host after the last step: train.full_state_file; 0 without
  std::int64_t wire_bytes = 0;             ///< sent by this rank in a step
  std::int64_t collectives = 0;            ///< started by this rank in a step

  std::int64_t tensor_bytes() const {
    return parameter_bytes + gradient_bytes + state_bytes + pool_bytes + activation_bytes;
  }
  /// The seeds' estimate of parameters, gradients and states: `factor` bytes a parameter, over the ranks.
  std::int64_t estimate(int factor) const { return factor * parameter_count / ranks; }
};

/// Devices that the ranks compute on. Collectives of CPU ranks have buffers that are tensors. Those of GPUs are NCCL's,
/// which allocates beside LibTorch, or the host's where ranks share a GPU.
enum class PlanFor { kCpus, kGpus };

/// The estimate's factors: 16 for Adam with fp32 masters, 8 and 6 for states in bf16.
inline constexpr int kEstimateFactors[] = {6, 8, 16};

/// Plans the training from steps that compute nothing (fsdp::DryRunGuard) over a transport that moves nothing: the
/// run's own model, units, optimizer and step, at its own number of ranks. So nothing is extrapolated but the traffic
/// of micro-batches after the second, of which each adds the same. Takes milliseconds a layer and no memory to speak
/// of.
///
/// Buffers of collectives are those of shared memory within a node, and of sockets between nodes; for GPUs there are
/// none. Bytes are those on the CPU. On a GPU the model's kernels keep less for backward, and the head holds up to 256
/// MiB of logits more. Not in it: the program itself (about 300 MiB), fragments, and NCCL's buffers.
///
/// `environment` gives the rank and the numbers of ranks. Not collective. Throws base::UsageError for a split that the
/// ranks do not allow, and c10::Error for a model whose operations have no known sizes.
RankPlan plan_rank(const RunConfig& config, const agent::rank::RankEnvironment& environment,
                   PlanFor ranks = PlanFor::kCpus, const MakeRecipe& make_recipe = worker::make_recipe);

/// The bytes of that plan alone, in less time. wire_bytes and collectives are those of two micro-batches at most.
RankPlan plan_memory(const RunConfig& config, const agent::rank::RankEnvironment& environment, PlanFor ranks);

}  // namespace worker
