#pragma once

#include <cstdint>

#include "schema/table.h"

namespace schema {

enum class ActivationCheckpointing { kNone, kBlock, kAttention, kMlp };

/// Over which ranks the parts of a model are spread, and when they are together.
enum class Strategy { kFullShard, kShardGradOp, kZero1, kHybridShard, kNoShard };

/// How the engine shards a model.
struct Sharding {
  Strategy strategy = Strategy::kFullShard;
  std::int64_t shard_ranks = 0;  // of a group of kHybridShard; 0: the ranks of a node
  bool reshard_after_forward = false;
  bool prefetch = false;
  bool shared_memory = false;
  ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::kNone;
  std::int64_t activation_checkpointing_every = 0;  // which blocks: each one with a number that this divides
};

/// The rows of Sharding.
const Table& sharding();

}  // namespace schema
