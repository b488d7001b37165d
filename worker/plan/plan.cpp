#include "plan/plan.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "data/sampler.h"
#include "fsdp/device_mesh.h"
#include "fsdp/dry_run.h"
#include "fsdp/fully_shard.h"
#include "fsdp/still_transport.h"
#include "fsdp/tensor_bytes.h"
#include "rank/reporter.h"
#include "train/loss_scale.h"
#include "train/optimizer.h"
#include "train/step.h"
#include "train/strategy.h"

namespace worker {
namespace {

constexpr std::int64_t kMostMicroBatches = 2;
constexpr std::int64_t kSteps = 2;
constexpr std::int64_t kSamples = 1024;

/// Nobody hears what a planned step reports.
class NoReporter : public Reporter {
 public:
  void section(Section) override {}
  void declare(std::vector<schema::Series>) override {}
  void step(const StepReport&) override {}
  void resumed_from(std::int64_t) override {}
  void checkpoint_saved(std::int64_t, std::int64_t, double) override {}
  StopKind stop_requested() const override { return StopKind::kNone; }
  bool assigns_rendezvous() const override { return false; }
  Endpoint rendezvous(std::optional<Endpoint> mine) override { return mine.value_or(Endpoint{}); }
  void leaving(int, std::string_view) override {}
};

/// The recipe with the sizes of its data alone.
class WithoutData : public Recipe {
 public:
  explicit WithoutData(std::unique_ptr<Recipe> inner) : inner_(std::move(inner)) {}
  std::string data_source() const override { return inner_->data_source(); }
  void load_data(const std::string&) override {}
  std::string data_fingerprint() const override { return ""; }
  std::string data_note() const override { return ""; }
  std::string data_name() const override { return ""; }
  std::int64_t train_samples() const override { return kSamples; }
  std::int64_t validation_samples() const override { return 0; }
  std::int64_t tokens_per_sample() const override { return 1; }
  std::shared_ptr<torch::nn::Module> make_module() override { return inner_->make_module(); }
  void shard(fsdp::ShardedModel& sharded, const fsdp::ShardOptions& options) override {
    inner_->shard(sharded, options);
  }
  std::string initialize(fsdp::ShardedModel&) override { return ""; }
  std::map<std::string, std::string> export_texts(at::ScalarType) const override { return {}; }
  int layers_above(const std::string& parameter) const override { return inner_->layers_above(parameter); }
  double weight(const std::vector<std::int64_t>& samples) override { return static_cast<double>(samples.size()); }
  at::Tensor loss(const std::vector<std::int64_t>& samples) override {
    return loss_without_data(static_cast<std::int64_t>(samples.size()));
  }
  at::Tensor loss_without_data(std::int64_t samples) override { return inner_->loss_without_data(samples); }

 private:
  std::unique_ptr<Recipe> inner_;
};

/// Ranks of one node exchange through shared memory. Those of all groups but "replicate" are neighbours.
fsdp::StillBuffers buffers_of(const fsdp::MeshGroup& group, const schema::Sharding& sharding,
                              const RankEnvironment& environment) {
  const int local = environment.local_world_size;
  const bool one_node = environment.world_size == local || (group.axis != "replicate" && local % group.size == 0);
  return one_node && sharding.shared_memory ? fsdp::StillBuffers::kSharedMemory : fsdp::StillBuffers::kSockets;
}

/// A training whose steps compute nothing.
class DryTraining {
 public:
  struct Step {
    std::int64_t wire_bytes = 0, collectives = 0;
  };

  DryTraining(const RunConfig& config, const RankEnvironment& environment, const MakeRecipe& make)
      : config_(config),
        environment_(environment),
        recipe_(make(config)),
        mesh_(
            environment.rank, environment.world_size,
            [&](const fsdp::MeshGroup& group) {
              return fsdp::make_still_transport(group.rank, group.size, buffers_of(group, config.fsdp, environment));
            },
            mesh_options(config.fsdp, environment)),
        sampler_(kSamples, 0, environment.rank, environment.world_size),
        sharded_(recipe_.make_module(), mesh_),
        loss_scale_(config.train, mesh_.device()) {
    const fsdp::DryRunGuard dry;
    recipe_.shard(sharded_, shard_options(config));
    optimizer_ = make_optimizer(config.optimizer, recipe_, sharded_);
    for (const auto& unit : sharded_.units()) unit->shard_changed();  // they have values of a kind now
  }

  /// Makes kSteps steps, and returns what the last one moved. Memory is the same from the second one on.
  Step make(const BatchSplit& split) {
    const fsdp::DryRunGuard dry;
    Stepper stepper(config_, split, environment_, reporter_, recipe_, sampler_, mesh_, sharded_, *optimizer_,
                    loss_scale_);
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
    sharded_.set_requires_gradient_sync(true);
    recipe_.loss({0}).backward();
    const std::int64_t bytes = sharded_.memory().gradient_shard_bytes;
    sharded_.zero_grad();
    return bytes;
  }

  const fsdp::ShardedModel& sharded() const { return sharded_; }
  const fsdp::Optimizer& optimizer() const { return *optimizer_; }

 private:
  const RunConfig& config_;
  const RankEnvironment& environment_;
  NoReporter reporter_;
  WithoutData recipe_;
  fsdp::DeviceMesh mesh_;
  ShardedSampler sampler_;
  fsdp::ShardedModel sharded_;
  LossScale loss_scale_;
  std::unique_ptr<fsdp::Optimizer> optimizer_;
};

RankPlan plan(const RunConfig& given, const RankEnvironment& environment, const MakeRecipe& make, bool traffic) {
  RunConfig config = given;
  config.train.step_delay_ms = 0;
  RankPlan out;
  out.ranks = environment.world_size;
  out.local_ranks = environment.local_world_size;
  out.split = split_batch(config.train, environment.world_size);

  const auto bytes = std::make_shared<fsdp::TensorBytes>();
  const fsdp::CountTensorBytes counts(bytes);
  DryTraining training(config, environment, make);
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

  out.parameter_count = training.sharded().parameter_count();
  out.parameter_bytes = training.sharded().memory().shard_bytes;
  out.state_bytes = training.optimizer().state_bytes();
  out.gradient_bytes = training.gradient_bytes();
  // With one rank, gradients lie in the pool.
  out.pool_bytes = kept - out.parameter_bytes - out.gradient_bytes - out.state_bytes;
  out.activation_bytes = peak - kept;
  if (config.train.cuda_graph) out.graph_bytes = out.activation_bytes;
  if (shard_options(config).offload.to_cpu)
    out.offloaded_bytes = out.parameter_bytes + out.gradient_bytes + out.state_bytes;
  if (config.checkpoint.asynchronous) out.snapshot_bytes = out.parameter_bytes + out.state_bytes;
  return out;
}

}  // namespace

RankPlan plan_rank(const RunConfig& config, const RankEnvironment& environment, const MakeRecipe& make) {
  return plan(config, environment, make, /*traffic=*/true);
}

RankPlan plan_memory(const RunConfig& config, const RankEnvironment& environment) {
  return plan(config, environment, make_recipe, /*traffic=*/false);
}

}  // namespace worker
