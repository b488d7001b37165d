#pragma once

#include <cstdint>
#include <optional>

#include "spec/table.h"
#include "spec/tables/training_keys.h"

namespace spec {

enum class ActivationCheckpointing { kNone, kBlock, kAttention, kMlp };

/// Operations whose results are kept though the part around them is computed again.
enum class KeptOperations { kNone, kLinear, kAttention, kBoth };

/// Over which ranks the parts of a model are spread, and when they are together.
enum class Strategy { kFullShard, kShardGradOp, kZero1, kHybridShard, kNoShard };

/// Where shards, gradients and optimizer states of a run on GPUs live.
enum class Offloading { kNone, kCpu };

/// Which modules become units.
enum class WrapBy { kBlock, kSize, kRoot };

/// How the engine shards a model.
struct Sharding {
  Strategy strategy = Strategy::kFullShard;
  std::int64_t shard_ranks = 0;  // of a group of kHybridShard; 0: the ranks of a node
  bool reshard_after_forward = false;
  std::int64_t reshard_to_ranks = 0;  // that share what forward has gathered; 0: nothing is kept
  bool reshard_after_backward = true;
  bool prefetch = false;
  std::int64_t prefetch_depth = 1;
  std::int64_t backward_prefetch_depth = -1;  // negative: prefetch_depth
  bool tight = false;
  Precision reduce_precision = Precision::kFp32;
  bool fp32_norms = false;  // norms compute in fp32 where the rest does not
  Offloading offload = Offloading::kNone;
  bool shared_memory = false;
  std::optional<bool> separate_reductions = std::nullopt;  // unset: as the engine decides
  WrapBy wrap = WrapBy::kBlock;
  std::int64_t wrap_min_parameters = 0;  // of kSize
  ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::kNone;
  KeptOperations activation_checkpointing_keeps = KeptOperations::kNone;
  bool activation_offload = false;
  bool check_memory = false;                        // refuse to start where the plan says that a rank would not fit
  std::int64_t activation_checkpointing_every = 0;  // which blocks: each one with a number that this divides
};

/// The rows of Sharding.
const Table& sharding();

}  // namespace spec
