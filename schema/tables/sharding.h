#pragma once

#include <cstdint>

#include "schema/table.h"

namespace schema {

enum class ActivationCheckpointing { kNone, kBlock, kAttention, kMlp };

/// How the engine shards a model.
struct Sharding {
  bool reshard_after_forward = false;
  bool prefetch = false;
  ActivationCheckpointing activation_checkpointing = ActivationCheckpointing::kNone;
  std::int64_t activation_checkpointing_every = 0;  // which blocks: each one with a number that this divides
};

/// The rows of Sharding.
const Table& sharding();

}  // namespace schema
