#pragma once
#include "fsdp/engine/fully_shard.h"

namespace fsdp {

// A model that follows another one, such as a teacher that is the moving average of its student. Both are sharded
// alike, so each rank averages its own slices: no collective, and no memory beside the shards.

/// slow += (1 - momentum) * (fast - slow), as at::lerp, for every parameter of `slow`. Parameters belong together by
/// their names; others of `fast` are left alone. Call it between steps: copies that `slow` has gathered are dropped.
/// Not collective, but every rank must call it. Throws c10::Error, on every rank and before anything is changed, for a
/// momentum outside of 0 to 1, for models in memory of two devices, for a parameter that has no values, and for the
/// first parameter that `fast` does not have, or has in another shape or with other slices, which other units, mesh or
/// trainability can cause.
/// It also throws for a parameter that `slow` keeps in 16 bits, where small steps would round to nothing. A parameter
/// is in fp32 where it trains. So leave requires_grad on, and run the slow model under NoGradGuard.
void average_into(ShardedModel& slow, const ShardedModel& fast, double momentum);

/// Gives every parameter of `to` the values that `from` has under the same name, such as those that a teacher begins
/// with. Dtypes and devices may differ. Otherwise as average_into(). `to` may have no values yet.
void copy_shards(ShardedModel& to, const ShardedModel& from);

}  // namespace fsdp
