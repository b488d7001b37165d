#include "worker/plan/command.h"

#include <c10/util/Exception.h>

#include "base/memory_limit.h"
#include "base/units.h"
#include "base/usage_error.h"
#include "fsdp/comm/device_mesh.h"
#include "worker/plan/assume.h"
#include "worker/train/gpu.h"

namespace worker {

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
