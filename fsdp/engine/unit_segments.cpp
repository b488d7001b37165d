// How a unit's parameters come into segments, and move between segments when requires_grad changes.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <functional>
#include <map>

#include "fsdp/engine/schedule.h"
#include "fsdp/engine/unit.h"

namespace fsdp {

/// A whole parameter on its way into a segment, with the states that belong to it.
struct Unit::Whole {
  at::Tensor value;
  bool has_master = false;
  std::map<std::string, at::Tensor> states;
};

void Unit::take_parameters() {
  std::vector<Whole> values;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    infos_[i].index = i;
    has_values_.push_back(!parameters_[i].is_meta());
    values.push_back({parameters_[i].detach(), parameters_[i].requires_grad(), {}});
  }
  const at::NoGradGuard no_grad;
  make_segments(values);
}

SegmentKey Unit::key_of(std::size_t parameter, bool has_master) const {
  const bool trainable = parameters_[parameter].requires_grad();
  const Precision& precision = options_.precision;
  const at::ScalarType dtype =
      precision.param_dtype_of ? precision.param_dtype_of(infos_[parameter]) : precision.param_dtype;
  for (const at::ScalarType type : {dtype, precision.reduce_dtype})
    TORCH_CHECK(type == at::kFloat || type == at::kBFloat16 || type == at::kHalf, "unit ", name_, ": parameter ",
                infos_[parameter].name, ": param_dtype and reduce_dtype must be float32, bfloat16 or float16, got ",
                type);
  return {trainable,       trainable || has_master, dtype, precision.reduce_dtype, precision.gradient_divide_factor,
          options_.offload};
}

void Unit::make_segments(const std::vector<Whole>& values) {
  std::map<SegmentKey, std::vector<std::size_t>, std::greater<>> groups;  // trainable ones first
  for (std::size_t i = 0; i < parameters_.size(); ++i) groups[key_of(i, values[i].has_master)].push_back(i);
  segments_.clear();
  has_part_ = false;
  Communicator& ranks = schedule_->communicator();
  const SegmentRanks partners{&ranks, &schedule_->reduce(), schedule_->replicas(),
                              schedule_->shard_group(options_.reshard_to_ranks)};
  bool resident = true;
  for (const auto& [key, members] : groups) {
    std::vector<ParameterInfo> infos;
    std::vector<at::Tensor> parameters;
    for (const std::size_t i : members) {
      infos.push_back(infos_[i]);
      parameters.push_back(parameters_[i]);
    }
    auto segment = std::make_unique<Segment>(key, UnitLayout(std::move(infos), ranks.world_size(), ranks.rank()),
                                             std::move(parameters), partners, name_);
    for (std::size_t p = 0; p < members.size(); ++p) {
      const Whole& whole = values[members[p]];
      if (!whole.value.is_meta()) segment->store(segment->shard(), p, whole.value);
      for (const auto& [state, value] : whole.states) segment->store(segment->state(state), p, value);
    }
    segment->take_over_parameters();
    resident = resident && segment->shard_is_parameter();
    segments_.push_back(std::move(segment));
  }
  state_ = resident ? State::kUnsharded : State::kSharded;
  schedule_->gather_stream().mark(values_ready_);
}

std::vector<Unit::Whole> Unit::gather_values() {
  std::vector<Whole> values(parameters_.size());
  Communicator& ranks = schedule_->communicator();
  for (const auto& segment : segments_) {
    const UnitLayout& layout = segment->layout();
    const auto gather = [&](const at::Tensor& flat) {
      at::Tensor buffer = at::empty({layout.padded_numel()}, flat.options().device(ranks.device()));
      ranks.gather(buffer, flat, name_);
      return buffer;
    };
    const at::Tensor shards = gather(segment->shard());
    for (const ParameterInfo& info : layout.parameters()) {
      values[info.index].value = shards.narrow(0, info.offset, info.numel);
      values[info.index].has_master = segment->key().has_master;
    }
    for (const auto& [name, flat] : segment->states()) {
      const at::Tensor states = gather(flat);
      for (const ParameterInfo& info : layout.parameters())
        values[info.index].states[name] = states.narrow(0, info.offset, info.numel);
    }
  }
  return values;
}

/// Moves parameters whose requires_grad has changed to their segment. While the unit holds gradients a frozen parameter
/// waits; it gets no gradient, so the optimizer leaves it alone.
void Unit::follow_requires_grad() {
  bool changed = false;
  const ParameterInfo* unfrozen = nullptr;
  for (const auto& segment : segments_) {
    segment->check_owned();
    for (std::size_t i = 0; i < segment->parameters_.size(); ++i) {
      const bool trainable = segment->parameters_[i].requires_grad();
      if (trainable == segment->key().trainable) continue;
      changed = true;
      if (trainable) unfrozen = &segment->layout().parameters()[i];
    }
  }
  if (!changed) return;
  follow_gradients();
  if (has_gradient() || has_unreduced()) {
    TORCH_CHECK(unfrozen == nullptr || !at::GradMode::is_enabled(), "unit ", name_, ": requires_grad of ",
                unfrozen->name,
                " was set in the middle of a step; set it before the step's first forward, after zero_grad()");
    return;
  }
  const at::NoGradGuard no_grad;
  schedule_->participation().finish();  // it refers to the segments
  const std::vector<Whole> values = gather_values();
  free_gathered();
  make_segments(values);
  ++parameter_version_;
}

bool Unit::follows_requires_grad() const {
  for (const auto& segment : segments_)
    for (const at::Tensor& parameter : segment->parameters_)
      if (parameter.requires_grad() != segment->key().trainable) return false;
  return true;
}

}  // namespace fsdp
