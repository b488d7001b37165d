#include "worker/plan/plan.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "agent/rank/reporter.h"
#include "fsdp/comm/device_mesh.h"
#include "fsdp/comm/transport.h"
#include "fsdp/engine/dry_run.h"
#include "fsdp/engine/fully_shard.h"
#include "fsdp/memory/storage.h"
#include "worker/batch/loader.h"
#include "worker/train/optimizer_of_run.h"
#include "worker/train/step.h"
#include "worker/train/strategy.h"
#include "worker/train/train_parts.h"

namespace worker {
namespace {

constexpr std::int64_t kMostMicroBatches = 2;
constexpr std::int64_t kSteps = 2;
constexpr std::int64_t kSamples = 1024;

/// Nobody hears what a planned step reports.
class NoReporter : public agent::rank::Reporter {
 public:
  void section(agent::rank::Section) override {}
  void declare(std::vector<spec::Series>) override {}
  void step(const agent::rank::StepReport&) override {}
  void resumed_from(std::int64_t) override {}
  void checkpoint_saved(std::int64_t, std::int64_t, double) override {}
  agent::rank::StopKind stop_requested() const override { return agent::rank::StopKind::kNone; }
  bool assigns_rendezvous() const override { return false; }
  agent::rank::Endpoint rendezvous(std::optional<agent::rank::Endpoint> mine) override {
    return mine.value_or(agent::rank::Endpoint{});
  }
  void leaving(int, std::string_view) override {}
};

/// Batches of the recipe's sizes, without data.
class WithoutData : public BatchSource {
 public:
  explicit WithoutData(const Recipe& recipe) : recipe_(recipe) {}
  std::int64_t samples() const override { return kSamples; }
  Batch collate(std::span<const std::int64_t> samples, std::span<const std::uint64_t> /*draws*/) const override {
    return recipe_.of_sizes(static_cast<std::int64_t>(samples.size()));
  }

 private:
  const Recipe& recipe_;
};

/// CPU ranks of one node exchange through shared memory. Those of all groups but "replicate" are neighbours.
fsdp::StillBuffers buffers_of(const fsdp::MeshGroup& group, const spec::Sharding& sharding,
                              const agent::rank::RankEnvironment& environment, PlanFor ranks) {
  if (ranks == PlanFor::kGpus) return fsdp::StillBuffers::kNone;
  const int local = environment.local_world_size;
  const bool one_node = environment.world_size == local || (group.axis != "replicate" && local % group.size == 0);
  if (one_node && sharding.shared_memory) return fsdp::StillBuffers::kSharedMemory;
  // Hosts agree along a tree, where a rank receives what a few others send.
  return group.axis == "control" ? fsdp::StillBuffers::kNone : fsdp::StillBuffers::kSockets;
}

/// A training whose steps compute nothing.
class DryTraining {
 public:
  struct Step {
    std::int64_t wire_bytes = 0, collectives = 0;
  };

  DryTraining(const RunConfig& config, const agent::rank::RankEnvironment& environment, PlanFor ranks,
              const MakeRecipe& make)
      : config_(config),
        environment_(environment),
        recipe_(make(config)),
        mesh_(
            environment.rank, environment.world_size,
            [&](const fsdp::MeshGroup& group) {
              return fsdp::make_still_transport(group.rank, group.size,
                                                buffers_of(group, config.fsdp, environment, ranks));
            },
            mesh_options(config.fsdp, environment)),
        loader_(std::make_shared<WithoutData>(*recipe_), data::order::Order({.samples = kSamples}), environment.rank,
                environment.world_size, {.threads = 0}),
        loss_scale_(config.train, mesh_.device()) {
    const fsdp::DryRunGuard dry;
    parts_.emplace(recipe_->parts(), mesh_, config);
    recipe_->attach(*parts_);
    for (const auto* model : parts_->models()) {
      for (const auto& unit : model->units()) unit->shard_changed();  // they have values of a kind now
    }
  }

  /// Makes kSteps steps, and returns what the last one moved. Memory is the same from the second one on.
  Step make(const BatchSplit& split) {
    const fsdp::DryRunGuard dry;
    Stepper stepper(config_, split, environment_, reporter_, *recipe_, loader_, *parts_, loss_scale_);
    stepper.prepare();
    Step before, after;
    for (std::int64_t step = 0; step < kSteps; ++step) {
      before = std::exchange(after, {});
      stepper.make(step);
      stepper.take();
      const fsdp::Traffic traffic = mesh_.traffic();
      after = {traffic.wire_bytes, traffic.collectives};
    }
    return {after.wire_bytes - before.wire_bytes, after.collectives - before.collectives};
  }

  /// Bytes of the reduced gradients between a step's backward and its end.
  std::int64_t gradient_bytes() {
    const fsdp::DryRunGuard dry;
    fsdp::ShardedModel& model = parts_->trained();
    model.set_requires_gradient_sync(true);
    recipe_->loss(recipe_->of_sizes(1)).sum.backward();
    const std::int64_t bytes = model.memory().gradient_shard_bytes;
    model.zero_grad();
    return bytes;
  }

  const Parts& parts() const { return *parts_; }

 private:
  const RunConfig& config_;
  const agent::rank::RankEnvironment& environment_;
  NoReporter reporter_;
  std::unique_ptr<Recipe> recipe_;
  fsdp::DeviceMesh mesh_;
  Loader loader_;
  LossScale loss_scale_;
  std::optional<Parts> parts_;
};

RankPlan plan(const RunConfig& given, const agent::rank::RankEnvironment& environment, PlanFor ranks,
              const MakeRecipe& make, bool traffic) {
  RunConfig config = given;
  config.train.step_delay_ms = 0;
  // The data tell how many steps train.epochs are. No memory depends on that number, but the rate of a step does.
  if (config.train.steps == 0) set_steps(config, kSteps);
  RankPlan out;
  out.ranks = environment.world_size;
  out.local_ranks = environment.local_world_size;
  out.split = split_batch(config.train, environment.world_size);

  const auto bytes = std::make_shared<fsdp::TensorBytes>();
  const fsdp::CountTensorBytes counts(bytes);
  DryTraining training(config, environment, ranks, make);
  BatchSplit split = out.split;
  split.accumulation = std::min(split.accumulation, kMostMicroBatches);
  const DryTraining::Step step = training.make(split);
  out.wire_bytes = step.wire_bytes;
  out.collectives = step.collectives;
  const std::int64_t peak = bytes->peak(), kept = bytes->now();
  if (const std::int64_t further = out.split.accumulation - split.accumulation; traffic && further > 0) {
    --split.accumulation;
    const DryTraining::Step less = training.make(split);
    out.wire_bytes += further * (step.wire_bytes - less.wire_bytes);
    out.collectives += further * (step.collectives - less.collectives);
  }

  out.parameter_count = training.parts().trained().parameter_count();
  out.parameter_bytes = training.parts().parameter_bytes();
  out.state_bytes = training.parts().optimizer().state_bytes();
  out.gradient_bytes = training.gradient_bytes();
  // With one rank, gradients lie in the pool.
  out.pool_bytes = kept - out.parameter_bytes - out.gradient_bytes - out.state_bytes;
  out.activation_bytes = peak - kept;
  if (config.train.cuda_graph) out.graph_bytes = out.activation_bytes;
  if (shard_options(config).offload.to_cpu)
    out.offloaded_bytes = out.parameter_bytes + out.gradient_bytes + out.state_bytes;
  out.host_activation_bytes = training.parts().host_activation_bytes();
  if (!config.exports.full_state_file.empty())
    out.full_state_bytes = training.parts().trained().parameter_count() * static_cast<std::int64_t>(sizeof(float));
  if (config.checkpoint.asynchronous) out.snapshot_bytes = out.parameter_bytes + out.state_bytes;
  return out;
}

}  // namespace

RankPlan plan_rank(const RunConfig& config, const agent::rank::RankEnvironment& environment, PlanFor ranks,
                   const MakeRecipe& make) {
  return plan(config, environment, ranks, make, /*traffic=*/true);
}

RankPlan plan_memory(const RunConfig& config, const agent::rank::RankEnvironment& environment, PlanFor ranks) {
  return plan(config, environment, ranks, make_recipe, /*traffic=*/false);
}

}  // namespace worker
