#include "worker/plan/fit.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "base/numbers.h"
#include "base/usage_error.h"

namespace worker {
namespace {

using base::bytes_text;
using spec::ActivationCheckpointing;
using spec::Strategy;

constexpr int kMostDoublings = 6;
constexpr int kMostRanks = 4096;

/// A run that may differ from the one that was asked for.
struct Variant {
  std::chrono::steady_clock::time_point until;  // no plan begins later
  RunConfig config;
  agent::rank::RankEnvironment environment;
  Remedy remedy;

  void set(const std::string& key, const std::string& value) { remedy.set.emplace_back(key, value); }
};

/// A change of settings. Returns false where it changes nothing.
struct Change {
  const char* price;
  std::function<bool(Variant&)> apply;
};

/// Sets a key to something else. Returns false where it is so already.
template <class Value>
bool set_key(Variant& run, Value& setting, Value to, const char* key, const char* text) {
  if (setting == to) return false;
  setting = to;
  run.set(key, text);
  return true;
}

bool shard_all(Variant& run) {
  auto& fsdp = run.config.fsdp;
  if (fsdp.strategy == Strategy::kFullShard && fsdp.reshard_after_forward) return false;
  if (fsdp.strategy != Strategy::kFullShard) run.set("fsdp.strategy", "full_shard");
  if (!fsdp.reshard_after_forward) run.set("fsdp.reshard_after_forward", "true");
  fsdp.strategy = Strategy::kFullShard;
  fsdp.reshard_after_forward = true;
  fsdp.shard_ranks = 0;
  return true;
}

bool save_in_place(Variant& run) {
  return set_key(run, run.config.checkpoint.asynchronous, false, "checkpoint.asynchronous", "false");
}

bool leave_out_full_state(Variant& run) {
  if (run.config.exports.full_state_file.empty()) return false;
  run.config.exports.full_state_file.clear();
  run.set("train.full_state_file", "");  // no job file can say an empty path
  return true;
}

bool set_micro_batch(Variant& run, std::int64_t size) {
  const BatchSplit split = split_batch(run.config.train, run.environment.world_size);
  if (size < 1 || size >= split.micro_batch_size || split.micro_batch_size % size != 0) return false;
  if (run.config.train.batch_size == 0) run.set("train.batch_size", std::to_string(split.batch_size));
  run.config.train.batch_size = split.batch_size;
  run.config.train.micro_batch_size = size;
  run.set("train.micro_batch_size", std::to_string(size));
  return true;
}

bool be_tight(Variant& run) {
  return set_key(run, run.config.fsdp.tight, true, "fsdp.tight", "true");
}

bool offload(Variant& run) {
  return set_key(run, run.config.fsdp.offload, spec::Offloading::kCpu, "fsdp.offload", "cpu");
}

bool recompute_blocks(Variant& run) {
  auto& fsdp = run.config.fsdp;
  if (fsdp.activation_checkpointing == ActivationCheckpointing::kBlock && fsdp.activation_checkpointing_every == 1)
    return false;
  fsdp.activation_checkpointing = ActivationCheckpointing::kBlock;
  run.set("fsdp.activation_checkpointing", "block");
  if (fsdp.activation_checkpointing_every != 1) run.set("fsdp.activation_checkpointing_every", "1");
  fsdp.activation_checkpointing_every = 1;
  return true;
}

bool offload_activations(Variant& run) {
  auto& fsdp = run.config.fsdp;
  const bool recomputes = fsdp.activation_checkpointing != ActivationCheckpointing::kNone || recompute_blocks(run);
  return recomputes && set_key(run, fsdp.activation_offload, true, "fsdp.activation_offload", "true");
}

bool compute_in_bf16(Variant& run) {
  auto& precision = run.config.train.precision;
  return precision == spec::Precision::kFp32 &&
         set_key(run, precision, spec::Precision::kBf16, "train.precision", "bf16");
}

bool multiply_nodes(Variant& run, int factor) {
  if (run.environment.world_size > kMostRanks / factor) return false;
  run.environment.world_size *= factor;
  run.set("resources.nodes", std::to_string(run.environment.world_size / run.environment.local_world_size));
  return true;
}

/// The changes in the order of their price. Those with a number come once for each number, the nearest first.
std::vector<std::vector<Change>> changes(const BatchSplit& split, bool of_gpu) {
  std::vector<std::vector<Change>> all = {{{"more traffic", shard_all}},
                                          {{"the training waits while a checkpoint is written", save_in_place}},
                                          {{"train.export_folder writes the same weights", leave_out_full_state}},
                                          {},
                                          {{"communication overlaps less with computing", be_tight}},
                                          {{"blocks are computed twice", recompute_blocks}},
                                          {{"rounds to bf16", compute_in_bf16}},
                                          {},
                                          {}};
  if (of_gpu)
    all[5].push_back({"blocks are computed twice, and their inputs travel between host and GPU", offload_activations});
  if (of_gpu) all[7].push_back({"weights and gradients travel between host and GPU", offload});
  for (std::int64_t size = split.micro_batch_size / 2; size >= 1; size /= 2)
    all[3].push_back({"more micro-batches a step", [size](Variant& run) { return set_micro_batch(run, size); }});
  for (int doubling = 1; doubling <= kMostDoublings; ++doubling)
    all[8].push_back({"more nodes", [doubling](Variant& run) { return multiply_nodes(run, 1 << doubling); }});
  return all;
}

/// Which change of each kind is made, by its place; -1: none.
using Choice = std::vector<int>;

/// The run with these changes, or nothing where it cannot be or does not fit.
std::optional<Remedy> fitted(const Variant& asked, const std::vector<std::vector<Change>>& all, const Choice& choice,
                             const Limit& limit) {
  if (std::chrono::steady_clock::now() > asked.until) return std::nullopt;
  Variant run = asked;
  for (std::size_t kind = 0; kind < all.size(); ++kind) {
    if (choice[kind] < 0) continue;
    const Change& change = all[kind][static_cast<std::size_t>(choice[kind])];
    if (!change.apply(run)) return std::nullopt;
    run.remedy.price += (run.remedy.price.empty() ? "" : ", ") + std::string(change.price);
  }
  try {
    run.remedy.bytes = bytes_against(plan_memory(run.config, run.environment, limit.ranks()), limit);
  } catch (const base::UsageError&) {
    return std::nullopt;
  }
  return run.remedy.bytes <= limit.bytes ? std::optional(run.remedy) : std::nullopt;
}

/// The nearest change of this kind with which the run fits, besides those of `choice`.
std::optional<Remedy> nearest(const Variant& asked, const std::vector<std::vector<Change>>& all, Choice& choice,
                              std::size_t kind, const Limit& limit) {
  for (int i = 0; i < static_cast<int>(all[kind].size()); ++i) {
    choice[kind] = i;
    if (auto remedy = fitted(asked, all, choice, limit)) return remedy;
  }
  return std::nullopt;
}

std::vector<Remedy> single_changes(const Variant& asked, const std::vector<std::vector<Change>>& all,
                                   const Limit& limit) {
  std::vector<Remedy> found;
  for (std::size_t kind = 0; kind < all.size(); ++kind) {
    Choice choice(all.size(), -1);
    if (auto remedy = nearest(asked, all, choice, kind, limit)) found.push_back(std::move(*remedy));
  }
  return found;
}

/// One change after the other, each as far as it goes, until the run fits. Then those are left out again, the dearest
/// first, without which it fits too.
std::vector<Remedy> combination(const Variant& asked, const std::vector<std::vector<Change>>& all, const Limit& limit) {
  Choice choice(all.size(), -1);
  std::optional<Remedy> found;
  for (std::size_t kind = 0; kind < all.size() && !found; ++kind) {
    found = nearest(asked, all, choice, kind, limit);
    Variant trial = asked;
    if (!found && (all[kind].empty() || !all[kind].back().apply(trial))) choice[kind] = -1;
  }
  if (!found) return {};
  for (std::size_t kind = all.size(); kind-- > 0;) {
    if (choice[kind] < 0) continue;
    Choice without = choice;
    without[kind] = -1;
    auto less = fitted(asked, all, without, limit);
    if (!less) less = nearest(asked, all, without, kind, limit);
    if (less) {
      found = std::move(less);
      choice = without;
    }
  }
  return {*found};
}

}  // namespace

std::int64_t bytes_against(const RankPlan& plan, const Limit& limit) {
  if (limit.of_gpu) return plan.tensor_bytes() - plan.offloaded_bytes;
  // Activations are gone when the full state is gathered, and no checkpoint is being written.
  return std::max(plan.tensor_bytes() + plan.snapshot_bytes,
                  plan.tensor_bytes() - plan.activation_bytes + plan.full_state_bytes);
}

std::vector<Remedy> remedies(const RunConfig& config, const agent::rank::RankEnvironment& environment,
                             const Limit& limit) {
  const Variant asked{std::chrono::steady_clock::now() + kSearch, config, environment, {}};
  const auto all = changes(split_batch(config.train, environment.world_size), limit.of_gpu);
  auto found = single_changes(asked, all, limit);
  return found.empty() ? combination(asked, all, limit) : found;
}

std::string settings_text(const Remedy& remedy) {
  std::string text;
  for (const auto& [key, value] : remedy.set)
    text += (text.empty() ? "" : ", ") + (value.empty() ? "no " + key : key + " = " + value);
  return text;
}

std::string misfit_text(const RankPlan& plan, const Limit& limit, const std::vector<Remedy>& remedies) {
  if (fits(plan, limit)) return "";
  std::string text = "by its plan a rank needs " + bytes_text(bytes_against(plan, limit)) + " (parameters " +
                     bytes_text(plan.parameter_bytes) + ", gradients " + bytes_text(plan.gradient_bytes) + ", states " +
                     bytes_text(plan.state_bytes) + ", pool " + bytes_text(plan.pool_bytes) + ", activations " +
                     bytes_text(plan.activation_bytes);
  if (!limit.of_gpu && plan.snapshot_bytes > 0) text += ", copy for checkpoints " + bytes_text(plan.snapshot_bytes);
  if (!limit.of_gpu && plan.full_state_bytes > 0)
    text += ", or at the end the full state " + bytes_text(plan.full_state_bytes) + " in place of activations";
  text += ") and does not fit: it has " + bytes_text(limit.bytes) + " (" + limit.what + ")";
  if (remedies.empty()) return text + "; no change of strategy, micro-batch, recomputing, precision or nodes would fit";
  text += "; what would fit: ";
  for (std::size_t i = 0; i < remedies.size(); ++i) {
    text += (i == 0 ? "" : "; or ") + settings_text(remedies[i]) + " (" + bytes_text(remedies[i].bytes) + ": " +
            remedies[i].price + ")";
  }
  return text;
}

}  // namespace worker
