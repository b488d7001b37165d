#include "worker/train/strategy.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "base/usage_error.h"
#include "fsdp/optim/moments.h"

namespace worker {
namespace {

using spec::Strategy;

int divided(const spec::Sharding& sharding, const agent::rank::RankEnvironment& environment) {
  const bool is_set = sharding.shard_ranks > 0;
  const auto group = is_set ? static_cast<int>(sharding.shard_ranks) : environment.local_world_size;
  if (environment.world_size % group == 0) return group;
  const auto ranks = std::to_string(environment.world_size);
  throw base::UsageError(
      (is_set ? "fsdp.shard_ranks \"" + std::to_string(group) + "\": want a divisor of the " + ranks + " ranks"
              : "fsdp.strategy \"hybrid_shard\": the " + ranks + " ranks are no multiple of the " +
                    std::to_string(group) + " on this node; set fsdp.shard_ranks to a divisor of " + ranks));
}

std::vector<fsdp::MeshAxis> axes_of(const spec::Sharding& sharding, const agent::rank::RankEnvironment& environment) {
  switch (sharding.strategy) {
    case Strategy::kFullShard:
    case Strategy::kShardGradOp:
    case Strategy::kZero1:
      return {};
    case Strategy::kNoShard:
      return {{"replicate", environment.world_size}};
    case Strategy::kHybridShard:
      break;
  }
  const int group = divided(sharding, environment);
  return {{"replicate", environment.world_size / group}, {"shard", group}};
}

/// In every family's names, as Hugging Face has them: input_layernorm.weight, LayerNorm.bias, norm1.weight.
bool is_of_norm(const fsdp::ParameterInfo& parameter) {
  std::string name = parameter.name;
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
  return parameter.shape.size() == 1 && name.find("norm") != std::string::npos;
}

}  // namespace

at::ScalarType dtype_of(spec::Precision precision) {
  switch (precision) {
    case spec::Precision::kBf16:
      return at::kBFloat16;
    case spec::Precision::kFp16:
      return at::kHalf;
    case spec::Precision::kFp32:
      break;
  }
  return at::kFloat;
}

fsdp::MeshOptions mesh_options(const spec::Sharding& sharding, const agent::rank::RankEnvironment& environment) {
  fsdp::MeshOptions options;
  options.axes = axes_of(sharding, environment);
  options.shared_memory = sharding.shared_memory;
  options.separate_reductions = sharding.separate_reductions;
  return options;
}

std::string separate_reductions_without_effect(const spec::Sharding& sharding, int shard_ranks, bool over_nccl) {
  if (!sharding.separate_reductions) return "";
  const std::string key = "fsdp.separate_reductions has no effect here: ";
  if (shard_ranks == 1) return key + "weights are on one rank, so no gradients are reduced over shards";
  if (!*sharding.separate_reductions && !over_nccl)
    return key + "without NCCL gathers and reductions share their connections anyway";
  return "";
}

void apply_strategy(Strategy strategy, const spec::Sharding& sharding, fsdp::ShardOptions& options) {
  options.reshard_after_forward =
      sharding.reshard_after_forward && strategy != Strategy::kShardGradOp && strategy != Strategy::kZero1;
  options.reshard_after_backward = sharding.reshard_after_backward && strategy != Strategy::kZero1;
}

void set_param_dtype(at::ScalarType dtype, bool fp32_norms, fsdp::Precision& precision) {
  precision.param_dtype = dtype;
  precision.param_dtype_of = {};
  if (!fp32_norms) return;
  precision.param_dtype_of = [dtype](const fsdp::ParameterInfo& parameter) {
    return is_of_norm(parameter) ? at::kFloat : dtype;
  };
}

fsdp::ShardOptions shard_options(const RunConfig& config) {
  const auto& sharding = config.fsdp;
  fsdp::ShardOptions options;
  set_param_dtype(dtype_of(config.train.precision), sharding.fp32_norms, options.precision);
  options.precision.reduce_dtype = dtype_of(sharding.reduce_precision);
  apply_strategy(sharding.strategy, sharding, options);
  options.reshard_to_ranks = static_cast<int>(sharding.reshard_to_ranks);
  options.prefetch_depth = sharding.prefetch ? static_cast<int>(sharding.prefetch_depth) : 0;
  if (sharding.prefetch && sharding.backward_prefetch_depth >= 0)
    options.backward_prefetch_depth = static_cast<int>(sharding.backward_prefetch_depth);
  options.tight = sharding.tight;
  options.offload.to_cpu = sharding.offload == spec::Offloading::kCpu;
  if (config.optimizer.moments == spec::MomentsFormat::kInt8) options.alignment = fsdp::kQuantisedBlock;
  return options;
}

fsdp::WrapPolicy wrap_policy(const spec::Sharding& sharding) {
  const auto is_part = [](const torch::nn::Module& module) {
    return dynamic_cast<const Block*>(&module) != nullptr || dynamic_cast<const OuterPart*>(&module) != nullptr;
  };
  switch (sharding.wrap) {
    case spec::WrapBy::kRoot:
      return fsdp::wrap_by_predicate([](const torch::nn::Module&) { return false; });
    case spec::WrapBy::kSize:
      return fsdp::wrap_by_size(
          sharding.wrap_min_parameters, [](const torch::nn::Module&) { return false; },
          [is_part](const torch::nn::Module& module) { return !is_part(module); });
    case spec::WrapBy::kBlock:
      break;
  }
  return fsdp::wrap_by_predicate(is_part);
}

fsdp::ShardOptions options_of_part(const torch::nn::Module& module, fsdp::ShardOptions options) {
  const auto* part = dynamic_cast<const OuterPart*>(&module);
  if (part == nullptr) return options;
  if (part->is_first && part->is_last) {
    options.reduce_each_run = true;
  } else if (part->is_first) {
    options.backward_reads_parameters = false;
  } else if (options.reshard_after_forward) {
    options.reshard_after_forward = false;
    options.runs_last = true;
  }
  return options;
}

void check_sharding(const spec::Sharding& sharding, int shard_ranks, c10::Device device) {
  if (sharding.offload == spec::Offloading::kCpu && device.is_cpu())
    throw base::UsageError(
        "fsdp.offload \"cpu\": this run is on CPUs, where it would only take memory and time; remove it, or set it to "
        "\"none\"");
  if (sharding.activation_offload && device.is_cpu())
    throw base::UsageError(
        "fsdp.activation_offload = true: this run is on CPUs, where it would only take memory and time; remove it");
  const auto neighbours = sharding.reshard_to_ranks;
  if (neighbours > 0 && (neighbours >= shard_ranks || shard_ranks % neighbours != 0))
    throw base::UsageError("fsdp.reshard_to_ranks \"" + std::to_string(neighbours) + "\": want a divisor of the " +
                           std::to_string(shard_ranks) + " ranks that weights are spread over, and not all of them");
}

}  // namespace worker
