#include "worker/plan/plan_command.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <vector>

#include "base/cgroups.h"
#include "base/numbers.h"
#include "base/usage_error.h"
#include "fsdp/comm/device_mesh.h"
#include "spec/recipes.h"
#include "worker/train/gpu.h"
#include "worker/train/start_weights.h"

namespace worker {
namespace {

/// Sizes of tensors follow from these rows, and no two models of a family have them alike.
bool is_size(const spec::Key& key) {
  return key.kind == spec::Kind::kWhole && !key.standard.empty() && !key.name.ends_with("_token_id");
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

PlannedRun assume_config(RunConfig config) {
  const std::string pretrained = config.values.text(spec::kPretrained);
  const auto tables = spec::tables_of(config.recipe, config.family);
  if (pretrained.empty() || tables.empty() || finds_model_config(config)) return {std::move(config), {}};
  const spec::Table& family = *tables.front();
  std::vector<std::string> missing, assumed;
  std::vector<const spec::Key*> absent;
  for (const auto& key : family.keys) {
    if (config.values.has(key.name)) continue;
    if (is_size(key)) missing.emplace_back(key.name);
    if (key.kind != spec::Kind::kPath) absent.push_back(&key);
  }
  const std::string place = "model.pretrained = \"" + pretrained + "\"";
  if (!missing.empty()) {
    throw base::UsageError(
        place +
        ": cannot read config.json there, which would tell the sizes of the model; plan where the folder "
        "is, or write the sizes "
        "into the job file, too: " +
        joined(missing));
  }
  config.values.set(spec::kPretrained, std::string());
  spec::fill_defaults(config.values, tables, /*ranks=*/0);
  for (const auto* key : absent) {
    if (const auto* value = config.values.find(key->name))
      assumed.push_back(std::string(key->name) + " = " + spec::print(*key, *value));
  }
  for (const auto& conflict : spec::conflicts_of(config.values, tables, /*ranks=*/0)) {
    // Other keys were looked at before, or are about the weights.
    if (std::ranges::find(family.keys, conflict.key, &spec::Key::name) == family.keys.end()) continue;
    throw base::UsageError(conflict.key + ": " + conflict.want +
                           (conflict.remedy.empty() ? "" : "; " + conflict.remedy));
  }
  std::string note = place + ": config.json cannot be read here";
  if (!assumed.empty()) note += ", so the plan is of " + joined(assumed);
  return {std::move(config), std::move(note)};
}

fsdp::Json plan_report(const RunConfig& given, const agent::rank::RankEnvironment& environment, const Limit& limit) {
  const auto [config, note] = assume_config(given);
  const RankPlan plan = plan_rank(config, environment, limit.ranks());
  fsdp::Json out;
  out["note"] = note;
  out["ranks"] = plan.ranks;
  out["ranks_of_node"] = plan.local_ranks;
  out["parameters"] = plan.parameter_count;
  out["batch_size"] = plan.split.batch_size;
  out["micro_batch_size"] = plan.split.micro_batch_size;
  out["accumulation"] = plan.split.accumulation;
  out["parameter_bytes"] = plan.parameter_bytes;
  out["gradient_bytes"] = plan.gradient_bytes;
  out["state_bytes"] = plan.state_bytes;
  out["pool_bytes"] = plan.pool_bytes;
  out["activation_bytes"] = plan.activation_bytes;
  out["tensor_bytes"] = plan.tensor_bytes();
  out["graph_bytes"] = plan.graph_bytes;
  out["offloaded_bytes"] = plan.offloaded_bytes;
  out["host_activation_bytes"] = plan.host_activation_bytes;
  out["snapshot_bytes"] = plan.snapshot_bytes;
  out["full_state_bytes"] = plan.full_state_bytes;
  out["wire_bytes"] = plan.wire_bytes;
  out["collectives"] = plan.collectives;
  for (const int factor : kEstimateFactors) out["estimates"][std::to_string(factor)] = plan.estimate(factor);
  out["limit_bytes"] = out["needed_bytes"] = out["fits"] = out["misfit"] = nullptr;
  out["remedies"] = fsdp::Json::Array();
  if (limit.bytes == 0) return out;
  out["limit_bytes"] = limit.bytes;
  out["needed_bytes"] = bytes_against(plan, limit);
  out["fits"] = fits(plan, limit);
  if (fits(plan, limit)) return out;
  const auto found = remedies(config, environment, limit);
  fsdp::Json::Array list;
  for (const Remedy& remedy : found) {
    fsdp::Json one;
    one["set"] = fsdp::Json::Object();
    for (const auto& [key, value] : remedy.set) one["set"][key] = value;
    one["price"] = remedy.price;
    one["needed_bytes"] = remedy.bytes;
    list.push_back(std::move(one));
  }
  out["remedies"] = std::move(list);
  out["misfit"] = misfit_text(plan, limit, found);
  return out;
}

std::optional<Limit> limit_here(const agent::rank::RankEnvironment& environment) {
  const c10::Device device = fsdp::device_of_rank(environment.local_rank);
  if (const auto bytes = gpu_size(device))
    return Limit{*bytes, true, "the memory of GPU " + std::to_string(device.index())};
  if (!device.is_cpu()) return std::nullopt;
  const base::MemoryLimit memory = base::memory_limit();
  if (memory.bytes == 0) return std::nullopt;
  const int ranks = environment.local_world_size;
  return Limit{memory.bytes / ranks, false,
               memory.of + " has " + base::bytes_text(memory.bytes) +
                   (ranks == 1 ? "" : " for " + std::to_string(ranks) + " ranks")};
}

void check_memory(const RunConfig& config, const agent::rank::RankEnvironment& environment,
                  const std::optional<Limit>& limit) {
  if (!limit || !config.fsdp.check_memory) return;
  std::optional<RankPlan> plan;
  try {
    plan = plan_memory(config, environment, limit->ranks());
  } catch (const c10::Error&) {
    return;  // an operation of the model has no known sizes, or this process may not reserve so many addresses
  }
  const std::int64_t uncertain = limit->of_gpu ? plan->activation_bytes : 0;
  if (bytes_against(*plan, *limit) - uncertain <= limit->bytes) return;
  throw base::UsageError(misfit_text(*plan, *limit, remedies(config, environment, *limit)) +
                         "; fsdp.check_memory = false runs it all the same");
}

}  // namespace worker
