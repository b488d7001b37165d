#include "fsdp/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <map>

namespace fsdp {

AdamW::AdamW(ShardedModel& model, AdamWOptions options) : model_(model), options_(std::move(options)) {
  for (const auto& unit : model_.units()) {
    const auto like_shard = unit->shard().options();
    states_.push_back({at::zeros({unit->layout().chunk()}, like_shard), at::zeros({unit->layout().chunk()}, like_shard),
                       std::vector<std::int64_t>(unit->layout().parameters().size())});
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
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const Unit& unit = *model_.units()[i];
    if (!unit.gradient_shard().defined()) continue;
    for (std::size_t p = 0; p < unit.layout().parameters().size(); ++p) {
      const ParameterInfo& parameter = unit.layout().parameters()[p];
      const Slice slice = unit.layout().slice(parameter, model_.mesh().rank());
      if (!parameter.trainable || slice.length == 0 || options_.decays(parameter) != decayed) continue;
      const auto part = [&slice](const at::Tensor& flat) { return flat.narrow(0, slice.shard_offset, slice.length); };
      batch.parameters.push_back(part(unit.shard()));
      batch.gradients.push_back(part(unit.gradient_shard()));
      batch.exp_avgs.push_back(part(states_[i].exp_avg));
      batch.exp_avg_sqs.push_back(part(states_[i].exp_avg_sq));
      at::Tensor& step = steps[states_[i].steps[p]];
      if (!step.defined()) step = at::scalar_tensor(static_cast<double>(states_[i].steps[p]), unit.shard().options());
      batch.steps.push_back(step);
    }
  }
  return batch;
}

/// Counts a step for every parameter of each unit with a gradient, even for parameters without an element on this rank.
/// So every rank has the same counts.
void AdamW::count_steps() {
  ++steps_;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const Unit& unit = *model_.units()[i];
    if (!unit.gradient_shard().defined()) continue;
    for (std::size_t p = 0; p < states_[i].steps.size(); ++p)
      states_[i].steps[p] += unit.layout().parameters()[p].trainable ? 1 : 0;
  }
}

void AdamW::step(double lr) {
  model_.check_step_is_whole("step");
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
    if (unit->gradient_shard().defined()) unit->shard_changed();
}

std::int64_t AdamW::state_bytes() const {
  std::int64_t bytes = 0;
  for (const UnitState& state : states_) bytes += static_cast<std::int64_t>(state.exp_avg.nbytes() * 2);
  return bytes;
}

}  // namespace fsdp
