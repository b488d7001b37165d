#include "spec/tables/sharding_keys.h"

#include <array>
#include <string>

#include "spec/limits.h"
#include "spec/tables/shared_rules.h"

namespace spec {
namespace {

constexpr std::string_view kStrategy = "fsdp.strategy", kShardRanks = "fsdp.shard_ranks",
                           kReshard = "fsdp.reshard_after_forward", kReshardToRanks = "fsdp.reshard_to_ranks",
                           kPrefetch = "fsdp.prefetch", kDepth = "fsdp.prefetch_depth",
                           kBackwardDepth = "fsdp.backward_prefetch_depth", kWrap = "fsdp.wrap",
                           kWrapLeast = "fsdp.wrap_min_parameters", kReducePrecision = "fsdp.reduce_precision",
                           kFp32Norms = "fsdp.fp32_norms", kPrecision = "train.precision",
                           kCheckpointing = "fsdp.activation_checkpointing",
                           kKeeps = "fsdp.activation_checkpointing_keeps",
                           kActivationOffload = "fsdp.activation_offload", kSeparate = "fsdp.separate_reductions";
constexpr std::int64_t kMostAhead = 64;

constexpr auto kKeys = std::to_array<Key>({
    row::choice(kStrategy, "full_shard", "full_shard shard_grad_op zero1 hybrid_shard no_shard",
                "How weights, gradients and optimizer states are spread over ranks. full_shard: all of them, gathered "
                "when needed. shard_grad_op: weights stay gathered from forward to backward. zero1: weights stay "
                "gathered for the whole step. hybrid_shard: full_shard within groups of shard_ranks ranks, and whole "
                "copies across groups. no_shard: each rank has a whole copy, as in DDP. The training is the same.",
                into<&Sharding::strategy>),
    row::whole(kShardRanks, derived("the ranks of a node"), {1, 4096}, "The ranks of a group of hybrid_shard.",
               into<&Sharding::shard_ranks>, "ranks"),
    row::choice(kWrap, "block", "block size root",
                "Which modules are gathered together. block: each transformer block; size: each block with at least "
                "wrap_min_parameters parameters; root: the whole model at once.",
                into<&Sharding::wrap>),
    row::whole(kWrapLeast, derived("20000 with wrap = \"size\""), {1, kMostExact},
               "The least parameters of a block that is gathered alone, with wrap = \"size\".",
               into<&Sharding::wrap_min_parameters>, "parameters"),
    row::flag(kReshard, "true",
              "Whether to free a unit's gathered weights between forward and backward: less memory, more traffic. "
              "shard_grad_op and zero1 keep them anyway.",
              into<&Sharding::reshard_after_forward>),
    row::whole(
        kReshardToRanks, derived("nothing is kept"), {2, 4096},
        "Ranks that keep a unit's gathered weights among them from forward to backward, such as those of a "
        "node. Backward then gathers among these ranks alone. Takes this share of the model's weights in memory.",
        into<&Sharding::reshard_to_ranks>, "ranks"),
    row::flag("fsdp.reshard_after_backward", "true",
              "Whether to free a unit's gathered weights after backward. false: they stay until the optimizer's step, "
              "so that a step of several micro-batches gathers less. zero1 keeps them anyway.",
              into<&Sharding::reshard_after_backward>),
    row::flag(kPrefetch, "true", "Whether to gather the next units while the current one computes.",
              into<&Sharding::prefetch>),
    row::whole(kDepth, "1", {0, kMostAhead},
               "How many units to gather ahead. Each takes the memory of its gathered weights.",
               into<&Sharding::prefetch_depth>, "units"),
    row::whole(kBackwardDepth, derived("prefetch_depth"), {0, kMostAhead}, "The same for backward.",
               into<&Sharding::backward_prefetch_depth>, "units"),
    row::flag("fsdp.tight", "false",
              "Whether a unit waits for the reduction of the one before until its own gradients take memory, and "
              "gradients take none between steps. Least memory, less overlap, the same training.",
              into<&Sharding::tight>),
    row::choice(kReducePrecision, "fp32", "fp32 bf16 fp16",
                "The format in which gradients are accumulated over micro-batches and summed over ranks. 16 bits halve "
                "the traffic and lose digits; fp16 needs train.precision = \"fp16\", which scales the loss. The "
                "optimizer works in fp32 either way.",
                into<&Sharding::reduce_precision>),
    row::flag(kFp32Norms, "false",
              "Whether norms keep fp32 weights and compute in fp32 beside matrices in the 16 bits of "
              "train.precision.",
              into<&Sharding::fp32_norms>),
    row::choice("fsdp.offload", "none", "none cpu",
                "cpu: shards, gradients and optimizer states live in the host's memory, and the optimizer runs there. "
                "For runs on GPUs.",
                into<&Sharding::offload>),
    row::flag("fsdp.shared_memory", "true",
              "Whether CPU ranks of one node exchange weights and gradients through shared memory. false: over "
              "sockets, as between nodes. The training is the same.",
              into<&Sharding::shared_memory>),
    row::flag(kSeparate, derived("true with NCCL 2.26 or newer, else false"),
              "Whether gradients are reduced over connections of their own, so that a gather of weights does not queue "
              "behind a reduction. With NCCL that is a second communicator on each GPU, whose launches must keep one "
              "order: set false where a training on many GPUs hangs. The training is the same.",
              into<&Sharding::separate_reductions>),
    row::choice(kCheckpointing, "none", "none block attention mlp",
                "What is computed again in backward instead of being kept: whole blocks, or the attention or the "
                "feed-forward part of them. Less memory, more time, the same result.",
                into<&Sharding::activation_checkpointing>),
    row::whole("fsdp.activation_checkpointing_every", "1", {1, 10'000},
               "Every how many blocks one is computed again, from the first one on.",
               into<&Sharding::activation_checkpointing_every>, "blocks"),
    row::choice(kKeeps, "none", "none linear attention both",
                "Operations of these parts whose results are kept instead of computed again: the products of linear "
                "layers, attention, or both. More memory, less time, the same result.",
                into<&Sharding::activation_checkpointing_keeps>),
    row::flag(kActivationOffload, "false",
              "Whether what activation_checkpointing keeps waits for backward in the host's memory. Copies run beside "
              "the computation. For runs on GPUs.",
              into<&Sharding::activation_offload>),
    row::flag("fsdp.check_memory", "true",
              "Whether a rank refuses to start where, by its plan, it needs more memory than it has; see muster plan. "
              "muster submit refuses, too, where it knows the memory.",
              into<&Sharding::check_memory>),
});

void check_shard_ranks(const Values& values, std::uint64_t ranks, std::vector<Conflict>& conflicts) {
  const auto group = values.whole(kShardRanks);
  if (group == 0) return;
  if (values.text(kStrategy) != "hybrid_shard") {
    add_conflict(conflicts, kShardRanks, "want fsdp.strategy = \"hybrid_shard\" with it", "remove it", {kStrategy});
  } else if (ranks % static_cast<std::uint64_t>(group) != 0) {
    add_conflict(conflicts, kShardRanks, "want a divisor of the " + std::to_string(ranks) + " ranks");
  }
}

void check_reshard_to_ranks(const Values& values, std::uint64_t ranks, std::vector<Conflict>& conflicts) {
  const auto neighbours = values.whole(kReshardToRanks);
  if (neighbours == 0) return;
  const auto add = [&](const std::string& want, std::string remedy, std::string_view related) {
    add_conflict(conflicts, kReshardToRanks, want, std::move(remedy), {related});
  };
  const auto strategy = values.text(kStrategy);
  const bool hybrid = strategy == "hybrid_shard";
  if (!hybrid && strategy != "full_shard")
    return add("want fsdp.strategy = \"full_shard\" or \"hybrid_shard\" with it", "remove it", kStrategy);
  if (!values.flag(kReshard)) return add("want fsdp.reshard_after_forward = true with it", "remove it", kReshard);
  const auto group = hybrid ? values.whole(kShardRanks) : static_cast<std::int64_t>(ranks);
  if (group == 0) return;  // the ranks of a node, which the worker knows
  if (neighbours >= group || group % neighbours != 0)
    add("want a divisor of the " + std::to_string(group) + " ranks that weights are spread over, and not all of them",
        "", hybrid ? kShardRanks : kStrategy);
}

void check_prefetch(const Values& values, std::vector<Conflict>& conflicts) {
  if (values.flag(kPrefetch)) return;
  for (const std::string_view key : {kDepth, kBackwardDepth}) {
    if (values.whole(key) <= (key == kDepth ? 1 : 0)) continue;  // the default, or none
    add_conflict(conflicts, key, "want fsdp.prefetch = true with it", "remove it, because it has no effect without",
                 {kPrefetch});
  }
}

void check_precision(const Values& values, std::vector<Conflict>& conflicts) {
  const auto precision = values.text(kPrecision);
  if (precision.empty()) return;
  want_scaled_loss(values, kReducePrecision, conflicts);
  if (values.flag(kFp32Norms) && precision == "fp32") {
    add_conflict(conflicts, kFp32Norms, "want train.precision = \"bf16\" or \"fp16\" with it",
                 "remove it, because norms are fp32 then anyway", {kPrecision});
  }
}

/// Checks the keys that have an effect only beside parts that are computed again.
void check_checkpointing(const Values& values, std::vector<Conflict>& conflicts) {
  const auto kept = values.text(kKeeps);
  if (values.text(kCheckpointing) == "none") {
    const std::string remedy = "remove it, because it has no effect without";
    for (const std::string_view key : {kKeeps, kActivationOffload}) {
      if (key == kKeeps ? kept == "none" : !values.flag(kActivationOffload)) continue;
      add_conflict(conflicts, key, "want fsdp.activation_checkpointing = \"block\" or a part of it with it", remedy,
                   {kCheckpointing});
    }
    return;
  }
  if (values.text(kCheckpointing) == "mlp" && (kept == "attention" || kept == "both")) {
    add_conflict(conflicts, kKeeps, "want \"linear\" with fsdp.activation_checkpointing = \"mlp\"",
                 "take it, because that part has no attention", {kCheckpointing});
  }
}

void check(const Values& values, std::uint64_t ranks, std::vector<Conflict>& conflicts) {
  check_checkpointing(values, conflicts);
  check_shard_ranks(values, ranks, conflicts);
  check_reshard_to_ranks(values, ranks, conflicts);
  check_prefetch(values, conflicts);
  check_precision(values, conflicts);
  if (values.has(kSeparate) && values.text(kStrategy) == "no_shard") {
    add_conflict(conflicts, kSeparate, "want another fsdp.strategy than \"no_shard\" with it",
                 "remove it, because without shards it has no effect", {kStrategy});
  }
  if (values.has(kWrapLeast) && values.text(kWrap) != "size") {
    add_conflict(conflicts, kWrapLeast, "want fsdp.wrap = \"size\" with it", "remove it", {kWrap});
  }
}

void derive(Values& values, std::uint64_t /*ranks*/) {
  constexpr std::int64_t kLeast = 20'000;  // as the policy by size of PyTorch's tutorial of FSDP
  if (values.text(kWrap) == "size") set_default(values, kWrapLeast, kLeast);
}

}  // namespace

const Table& sharding() {
  static const Table table{"fsdp", kKeys, derive, check};
  return table;
}

}  // namespace spec
