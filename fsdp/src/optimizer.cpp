#include "fsdp/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/scalar_tensor.h>

#include <map>

namespace fsdp {

namespace {

constexpr const char* kExpAvg = "exp_avg";
constexpr const char* kExpAvgSq = "exp_avg_sq";

}  // namespace

AdamW::AdamW(ShardedModel& model, AdamWOptions options) : model_(model), options_(std::move(options)) {
  for (const auto& unit : model_.units()) {
    std::size_t parameters = 0;
    for (const auto& segment : unit->segments()) {
      parameters += segment->layout().parameters().size();
      if (!segment->key().has_master) continue;
      segment->state(kExpAvg);
      segment->state(kExpAvgSq);
    }
    steps_of_.emplace_back(parameters);
  }
}

/// Each list entry is one parameter's slice of the shard, not a whole unit. So padding is never touched, and every
/// element takes the same path through the kernel as in an unsharded parameter.
struct AdamW::Batch {
  std::vector<at::Tensor> parameters, gradients, exp_avgs, exp_avg_sqs, steps;
};

AdamW::Batch AdamW::batch(bool decayed) const {
  Batch batch;
  std::map<std::int64_t, at::Tensor> steps;  // the kernel only reads step counts, so equal ones share a tensor
  for (std::size_t u = 0; u < steps_of_.size(); ++u) {
    for (const auto& segment : model_.units()[u]->segments()) {
      if (!segment->gradient_shard().defined()) continue;
      const auto& parameters = segment->layout().parameters();
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        const Slice slice = segment->layout().own(parameters[p]);
        if (!segment->used(p) || slice.length == 0 || options_.decays(parameters[p]) != decayed) continue;
        const auto part = [&slice](const at::Tensor& flat) { return flat.narrow(0, slice.shard_offset, slice.length); };
        batch.parameters.push_back(part(segment->shard()));
        batch.gradients.push_back(part(segment->gradient_shard()));
        batch.exp_avgs.push_back(part(segment->state(kExpAvg)));
        batch.exp_avg_sqs.push_back(part(segment->state(kExpAvgSq)));
        const std::int64_t count = steps_of_[u][parameters[p].index];
        at::Tensor& step = steps[count];
        if (!step.defined()) step = at::scalar_tensor(static_cast<double>(count), segment->shard().options());
        batch.steps.push_back(step);
      }
    }
  }
  return batch;
}

/// Counts a step for every parameter that took part, even for parameters without an element on this rank. So every rank
/// has the same counts.
void AdamW::count_steps() {
  ++steps_;
  for (std::size_t u = 0; u < steps_of_.size(); ++u) {
    for (const auto& segment : model_.units()[u]->segments()) {
      if (!segment->gradient_shard().defined()) continue;
      const auto& parameters = segment->layout().parameters();
      for (std::size_t p = 0; p < parameters.size(); ++p) steps_of_[u][parameters[p].index] += segment->used(p) ? 1 : 0;
    }
  }
}

void AdamW::step(double lr) {
  model_.complete_gradients("step");
  const at::NoGradGuard no_grad;
  count_steps();
  for (const bool decayed : {true, false}) {
    Batch lists = batch(decayed);
    if (lists.parameters.empty()) continue;
    at::_fused_adamw_(lists.parameters, lists.gradients, lists.exp_avgs, lists.exp_avg_sqs, {}, lists.steps, lr,
                      options_.beta1, options_.beta2, decayed ? options_.weight_decay : 0.0, options_.eps,
                      /*amsgrad=*/false, /*maximize=*/false);
  }
  for (const auto& unit : model_.units())
    if (unit->has_gradient()) unit->shard_changed();
}

std::int64_t AdamW::state_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& unit : model_.units())
    for (const auto& segment : unit->segments())
      for (const auto& [name, state] : segment->states()) bytes += static_cast<std::int64_t>(state.nbytes());
  return bytes;
}

}  // namespace fsdp
