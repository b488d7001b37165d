#include "train/strategy.h"

#include <string>
#include <vector>

#include "rank/errors.h"

namespace worker {
namespace {

using schema::Strategy;

int divided(const schema::Sharding& sharding, const RankEnvironment& environment) {
  const bool is_set = sharding.shard_ranks > 0;
  const auto group = is_set ? static_cast<int>(sharding.shard_ranks) : environment.local_world_size;
  if (environment.world_size % group == 0) return group;
  const auto ranks = std::to_string(environment.world_size);
  throw UsageError(
      (is_set ? "fsdp.shard_ranks \"" + std::to_string(group) + "\": want a divisor of the " + ranks + " ranks"
              : "fsdp.strategy \"hybrid_shard\": the " + ranks + " ranks are no multiple of the " +
                    std::to_string(group) + " on this node; set fsdp.shard_ranks to a divisor of " + ranks));
}

std::vector<fsdp::MeshAxis> axes_of(const schema::Sharding& sharding, const RankEnvironment& environment) {
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

}  // namespace

at::ScalarType dtype_of(schema::Precision precision) {
  switch (precision) {
    case schema::Precision::kBf16:
      return at::kBFloat16;
    case schema::Precision::kFp16:
      return at::kHalf;
    case schema::Precision::kFp32:
      break;
  }
  return at::kFloat;
}

fsdp::MeshOptions mesh_options(const schema::Sharding& sharding, const RankEnvironment& environment) {
  fsdp::MeshOptions options;
  options.axes = axes_of(sharding, environment);
  options.shared_memory = sharding.shared_memory;
  return options;
}

fsdp::ShardOptions shard_options(const RunConfig& config) {
  const auto strategy = config.fsdp.strategy;
  fsdp::ShardOptions options;
  options.precision.param_dtype = dtype_of(config.train.precision);
  options.reshard_after_forward =
      config.fsdp.reshard_after_forward && strategy != Strategy::kShardGradOp && strategy != Strategy::kZero1;
  options.reshard_after_backward = strategy != Strategy::kZero1;
  options.prefetch_depth = config.fsdp.prefetch ? 1 : 0;
  return options;
}

}  // namespace worker
