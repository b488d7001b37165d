#include "schema/tables/sharding.h"

#include <array>

namespace schema {
namespace {

constexpr auto kKeys = std::to_array<Key>({
    {.name = "fsdp.reshard_after_forward",
     .kind = Kind::kFlag,
     .standard = "true",
     .meaning = "Whether to free a unit's gathered weights between forward and backward: less memory, more traffic.",
     .assign = into<&Sharding::reshard_after_forward>},
    {.name = "fsdp.prefetch",
     .kind = Kind::kFlag,
     .standard = "true",
     .meaning = "Whether to gather the next unit while the current one computes.",
     .assign = into<&Sharding::prefetch>},
    {.name = "fsdp.activation_checkpointing",
     .kind = Kind::kChoice,
     .standard = "none",
     .choices = "none block attention mlp",
     .meaning = "What is computed again in backward instead of being kept: whole blocks, or the attention or the "
                "feed-forward part of them. Less memory, more time, the same result.",
     .assign = into<&Sharding::activation_checkpointing>},
    {.name = "fsdp.activation_checkpointing_every",
     .kind = Kind::kWhole,
     .standard = "1",
     .low = 1,
     .high = 10'000,
     .unit = "blocks",
     .meaning = "Every how many blocks one is computed again, from the first one on.",
     .assign = into<&Sharding::activation_checkpointing_every>},
});

}  // namespace

const Table& sharding() {
  static const Table table{"fsdp", kKeys};
  return table;
}

}  // namespace schema
