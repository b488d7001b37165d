#include "worker/train/train_parts.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <functional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/usage_error.h"
#include "fsdp/engine/gradient_place.h"
#include "fsdp/engine/wrap.h"
#include "worker/models/layers/layers.h"
#include "worker/models/ops.h"
#include "worker/train/optimizer_of_run.h"
#include "worker/train/strategy.h"

namespace worker {
namespace {

fsdp::SetWrapper wrapper_point(torch::nn::Module& module) {
  auto* wrapped = dynamic_cast<Wrapped*>(&module);
  if (wrapped == nullptr) return nullptr;
  return [wrapped](fsdp::Wrapper wrapper) { wrapped->wrapper = std::move(wrapper); };
}

std::set<std::string, std::less<>> kept_operations(spec::KeptOperations kept) {
  std::set<std::string, std::less<>> names;
  if (kept == spec::KeptOperations::kLinear || kept == spec::KeptOperations::kBoth) names.emplace(kLinear);
  if (kept == spec::KeptOperations::kAttention || kept == spec::KeptOperations::kBoth) names.emplace(kAttention);
  return names;
}

/// Recomputes inside of the blocks' units, so that a block is gathered once in backward.
void checkpoint_activations(torch::nn::Module& module, const spec::Sharding& sharding,
                            const std::shared_ptr<fsdp::HostActivations>& host) {
  using spec::ActivationCheckpointing;
  const fsdp::RecomputeOptions options{kept_operations(sharding.activation_checkpointing_keeps), host};
  const auto what = sharding.activation_checkpointing;
  std::int64_t number = 0;
  for (const auto& each : module.modules(/*include_self=*/false)) {
    auto* block = dynamic_cast<Block*>(each.get());
    if (block == nullptr || number++ % sharding.activation_checkpointing_every != 0) continue;
    if (what == ActivationCheckpointing::kBlock) block->wrapper = nested(block->wrapper, recomputing(*block, options));
    if (what == ActivationCheckpointing::kAttention) block->attention_wrapper = recomputing(*block, options);
    if (what == ActivationCheckpointing::kMlp) block->mlp_wrapper = recomputing(*block, options);
  }
}

}  // namespace

Parts::Parts(std::vector<Part> parts, fsdp::DeviceMesh& mesh, const RunConfig& config)
    : mesh_(mesh), parts_(std::move(parts)) {
  const auto is_trained = [](const Part& part) { return part.trained; };
  TORCH_CHECK(std::ranges::count_if(parts_, is_trained) == 1, "a recipe has one part that is trained");
  trained_ = static_cast<std::size_t>(std::ranges::find_if(parts_, is_trained) - parts_.begin());
  // From now on the models' functions write gradients to where the engine wants them.
  use_gradient_places(&fsdp::place_of_gradient);
  for (const auto& part : parts_) shard(part, config);
  set_training(true);
  optimizer_ = make_optimizer(config, parts_[trained_], trained());
}

/// train.frozen: before the units are made, since frozen parameters have segments of their own.
void Parts::freeze(const Part& part, const std::string& beginnings) const {
  std::istringstream words(beginnings);
  for (std::string beginning; words >> beginning;) {
    bool found = false;
    for (auto& item : part.module->named_parameters()) {
      if (!item.key().starts_with(beginning)) continue;
      item.value().requires_grad_(false);
      found = true;
    }
    if (!found) {
      throw base::UsageError("train.frozen: the model has no parameter whose name begins with \"" + beginning +
                             "\"; its first is " + part.module->named_parameters().keys().front());
    }
  }
}

void Parts::shard(const Part& part, const RunConfig& config) {
  if (part.trained) freeze(part, config.train.frozen);
  models_.push_back(std::make_unique<fsdp::ShardedModel>(part.module, mesh_));
  fsdp::WrapOptions options;
  options.children = shard_options(config);
  options.options_of = [&part](const torch::nn::Module& module, fsdp::ShardOptions given) {
    return options_of_part(module, part.options ? part.options(module, std::move(given)) : std::move(given));
  };
  options.with = [](const torch::nn::Module& module) {
    const auto* outer = dynamic_cast<const OuterPart*>(&module);
    return outer == nullptr ? std::vector<std::shared_ptr<torch::nn::Module>>() : outer->with;
  };
  options.wrap_point_of = wrapper_point;
  fsdp::WrapPolicy policy = wrap_policy(config.fsdp);
  if (part.is_unit) {
    policy.choose = [of_run = policy.choose, &part](const torch::nn::Module& module, std::int64_t numel) {
      return of_run(module, numel) || part.is_unit(module);
    };
  }
  fsdp::wrap(*models_.back(), part.module, policy, options);
  if (!part.trained) return;
  if (config.fsdp.activation_offload) host_activations_ = std::make_shared<fsdp::HostActivations>(mesh_.device());
  checkpoint_activations(*part.module, config.fsdp, host_activations_);
}

fsdp::ShardedModel& Parts::model(std::string_view name) {
  const auto found = std::ranges::find(parts_, name, &Part::name);
  if (found == parts_.end()) throw std::logic_error("the recipe has no part " + std::string(name));
  return *models_[static_cast<std::size_t>(found - parts_.begin())];
}

std::vector<fsdp::ShardedModel*> Parts::models() {
  std::vector<fsdp::ShardedModel*> out;
  for (const auto& model : models_) out.push_back(model.get());
  return out;
}

std::vector<fsdp::CheckpointPart> Parts::checkpointed() {
  std::vector<fsdp::CheckpointPart> out;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    out.push_back({parts_[i].name, *models_[i], i == trained_ ? optimizer_.get() : nullptr, parts_[i].saved});
  }
  return out;
}

bool Parts::leave_out_parameters() const {
  return std::ranges::any_of(parts_, [](const Part& part) { return part.saved != nullptr; });
}

void Parts::set_training(bool on) {
  for (const auto& part : parts_) part.module->train(on && part.trained);
}

std::int64_t Parts::parameter_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& model : models_) bytes += model->memory().shard_bytes;
  return bytes;
}

std::int64_t Parts::gradient_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& model : models_) bytes += model->memory().gradient_memory_bytes;
  return bytes;
}

std::int64_t Parts::host_activation_bytes() const {
  return host_activations_ ? host_activations_->peak_bytes() : 0;
}

std::int64_t Parts::pool_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& model : models_) bytes += model->memory().pool_bytes;
  return bytes;
}

}  // namespace worker
