#include "schema/tables/sharding.h"

#include <array>
#include <string>

namespace schema {
namespace {

constexpr std::string_view kStrategy = "fsdp.strategy", kShardRanks = "fsdp.shard_ranks";

constexpr auto kKeys = std::to_array<Key>({
    {.name = kStrategy,
     .kind = Kind::kChoice,
     .standard = "full_shard",
     .choices = "full_shard shard_grad_op zero1 hybrid_shard no_shard",
     .meaning = "How weights, gradients and optimizer states are spread over ranks. full_shard: all of them, gathered "
                "when needed. shard_grad_op: weights stay gathered from forward to backward. zero1: weights stay "
                "gathered for the whole step. hybrid_shard: full_shard within groups of shard_ranks ranks, and whole "
                "copies across groups. no_shard: each rank has a whole copy, as in DDP. The training is the same.",
     .assign = into<&Sharding::strategy>},
    {.name = kShardRanks,
     .kind = Kind::kWhole,
     .derived = "the ranks of a node",
     .low = 1,
     .high = 4096,
     .unit = "ranks",
     .meaning = "The ranks of a group of hybrid_shard.",
     .assign = into<&Sharding::shard_ranks>},
    {.name = "fsdp.reshard_after_forward",
     .kind = Kind::kFlag,
     .standard = "true",
     .meaning = "Whether to free a unit's gathered weights between forward and backward: less memory, more traffic. "
                "shard_grad_op and zero1 keep them anyway.",
     .assign = into<&Sharding::reshard_after_forward>},
    {.name = "fsdp.prefetch",
     .kind = Kind::kFlag,
     .standard = "true",
     .meaning = "Whether to gather the next unit while the current one computes.",
     .assign = into<&Sharding::prefetch>},
    {.name = "fsdp.shared_memory",
     .kind = Kind::kFlag,
     .standard = "true",
     .meaning = "Whether CPU ranks of one node exchange weights and gradients through shared memory. false: over "
                "Gloo's sockets, as between nodes. The training is the same.",
     .assign = into<&Sharding::shared_memory>},
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

void check(const Values& values, std::uint64_t ranks, std::vector<Conflict>& conflicts) {
  const auto group = values.whole(kShardRanks);
  if (group == 0) return;
  if (values.text(kStrategy) != "hybrid_shard") {
    conflicts.push_back({std::string(kShardRanks),
                         "want fsdp.strategy = \"hybrid_shard\" with it",
                         "remove it",
                         {std::string(kStrategy)}});
  } else if (ranks % static_cast<std::uint64_t>(group) != 0) {
    conflicts.push_back(
        {std::string(kShardRanks), "want a divisor of the " + std::to_string(ranks) + " ranks", "", {}});
  }
}

}  // namespace

const Table& sharding() {
  static const Table table{"fsdp", kKeys, nullptr, check};
  return table;
}

}  // namespace schema
