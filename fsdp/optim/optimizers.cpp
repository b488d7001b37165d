#include "fsdp/optim/optimizers.h"

#include <algorithm>
#include <cmath>

namespace fsdp {

ParameterGroup decay_matrices(const ParameterInfo& parameter) {
  ParameterGroup group;
  if (parameter.shape.size() < 2) group.weight_decay = 0;
  return group;
}

GroupOf with_layer_rates(GroupOf group, double factor, std::function<int(const ParameterInfo&)> distance) {
  return [group = std::move(group), factor, distance = std::move(distance)](const ParameterInfo& parameter) {
    ParameterGroup out = group(parameter);
    out.lr_scale *= std::pow(factor, distance(parameter));
    return out;
  };
}

Optimizer::~Optimizer() = default;

Optimizer::Optimizer(ShardedModel& model, std::string name, std::vector<StateSpec> states, double weight_decay,
                     const GroupOf& group)
    : model_(model), name_(std::move(name)), states_(std::move(states)), weight_decay_(weight_decay) {
  for (const auto& unit : model_.units()) {
    first_of_unit_.push_back(groups_.size());
    for (const auto& segment : unit->segments()) groups_.resize(groups_.size() + segment->layout().parameters().size());
  }
  for (const auto& [unit, segment, info] : model_.parameters()) {
    ParameterGroup& own = groups_[first_of_unit_[unit] + info.index];
    own = group(info);
    rates_[own.rate] = 1;
  }
  for (const StateSpec& state : states_) make_state(state);
  counts_ = at::zeros({static_cast<std::int64_t>(groups_.size())},
                      at::TensorOptions().dtype(at::kFloat).device(model_.home()));
}

std::vector<std::string> Optimizer::state_names() const {
  std::vector<std::string> names;
  for (const StateSpec& state : states_) names.push_back(state.name);
  return names;
}

void Optimizer::make_state(const StateSpec& state) {
  for (const auto& unit : model_.units())
    for (const auto& segment : unit->segments())
      if (segment->key().has_master) segment->state(state.name, state.form);
}

void Optimizer::step(double lr, const at::Tensor& grad_scale, const at::Tensor& found_inf) {
  const auto rate = [&](const ParameterGroup& group, Update& now) {
    now.lr = lr * group.lr_scale * rates_.at(group.rate);
  };
  update_all(rate, grad_scale, found_inf);
}

void Optimizer::step(const at::Tensor& lr, const at::Tensor& grad_scale, const at::Tensor& found_inf) {
  TORCH_CHECK(lr.defined() && lr.dim() == 0 && lr.scalar_type() == at::kFloat && lr.device() == counts_.device(),
              "optimizer ", name_, ": a learning rate on the device is fp32 without dims on ", counts_.device());
  TORCH_CHECK(host_reads().empty(), "optimizer ", name_, ": its step reads ", host_reads(),
              " on the host, so it takes no learning rate on the device; give a number");
  const auto rate = [&](const ParameterGroup& group, Update& now) {
    const double scale = group.lr_scale * rates_.at(group.rate);
    now.lr_on_device = scale == 1 ? lr : lr.mul(scale);
  };
  update_all(rate, grad_scale, found_inf);
}

void Optimizer::set_rate(int rate, double scale) {
  const auto found = rates_.find(rate);
  TORCH_CHECK(found != rates_.end(), "optimizer ", name_, ": no parameter has rate ", rate,
              "; give it to a parameter's group first");
  TORCH_CHECK(scale >= 0 && std::isfinite(scale), "optimizer ", name_, ": scale ", scale, " of rate ", rate,
              ": want 0 or more");
  found->second = scale;
}

void Optimizer::update_all(const std::function<void(const ParameterGroup&, Update&)>& rate,
                           const at::Tensor& scale_anywhere, const at::Tensor& found_inf_anywhere) {
  check_own_weights("step()");
  const Tracer::Scope span(model_.mesh().tracer().get(), "optimizer", "step");
  model_.complete_gradients("step");
  const at::NoGradGuard no_grad;
  const auto at_home = [this](const at::Tensor& given) { return given.defined() ? given.to(counts_.device()) : given; };
  const at::Tensor grad_scale = at_home(scale_anywhere), found_inf = at_home(found_inf_anywhere);
  if (!active_.defined() || !lists_are_current()) make_lists();
  ++steps_;
  if (found_inf.defined()) {
    counts_.add_(active_.mul(at::rsub(found_inf, 1)));
  } else {
    counts_.add_(active_);
  }
  Update now;
  if (grad_scale.defined()) now.grad_scale = grad_scale;
  if (found_inf.defined()) now.found_inf = found_inf;
  const auto rate_of = [&](const ParameterGroup& group) {
    Update with_rate = now;
    rate(group, with_rate);
    with_rate.weight_decay = group.weight_decay.value_or(weight_decay_);
    return with_rate;
  };
  update_together(updated_, rate_of, now);
  if (keeps_average()) update_averages(found_inf);
  for (Unit* unit : updated_units_) unit->shard_changed();
}

void Optimizer::update_together(const std::vector<Updated>& /*all*/, const RateOf& rate, const Update& /*update*/) {
  for (Batch& batch : batches_) update(batch, rate(batch.group));
}

std::vector<std::int64_t> Optimizer::steps_of(const std::vector<Updated>& all) const {
  const at::Tensor counts = counts_.to(at::kCPU, at::kLong);
  std::vector<std::int64_t> steps;
  for (const Updated& one : all) steps.push_back(counts.const_data_ptr<std::int64_t>()[one.place]);
  return steps;
}

bool Optimizer::lists_are_current() const {
  auto origin = origins_.begin();
  for (const auto& unit : model_.units()) {
    for (const auto& segment : unit->segments()) {
      if (origin == origins_.end() || !origin->shard.is_same(segment->shard()) ||
          !origin->gradient.is_same(segment->gradient_shard()) || origin->used != segment->used())
        return false;
      ++origin;
    }
  }
  return origin == origins_.end();
}

void Optimizer::make_lists() {
  origins_.clear();
  batches_.clear();
  updated_.clear();
  updated_units_.clear();
  std::vector<float> active(groups_.size());
  for (std::size_t u = 0; u < first_of_unit_.size(); ++u) {
    const auto& unit = model_.units()[u];
    for (const auto& segment : unit->segments()) {
      origins_.push_back({segment->shard(), segment->gradient_shard(), segment->used()});
      if (segment->gradient_shard().defined()) add_segment(first_of_unit_[u], *segment, active);
    }
    if (unit->has_gradient()) updated_units_.push_back(unit.get());
  }
  active_ = at::tensor(active).to(counts_.device());
}

void Optimizer::add_segment(std::size_t first_parameter, Segment& segment, std::vector<float>& active) {
  const auto& parameters = segment.layout().parameters();
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const std::size_t place = first_parameter + parameters[p].index;
    if (!segment.used(p) || groups_[place].skip) continue;
    // A parameter without an element on this rank counts too. So every rank has the same counts.
    active[place] = 1;
    updated_.push_back({parameters[p], groups_[place], &segment, place});
    const Slice slice = segment.layout().own(parameters[p]);
    if (slice.length == 0) continue;
    Batch& batch = batch_of(groups_[place]);
    batch.parameters.push_back(slice.in(segment.shard()));
    batch.gradients.push_back(slice.in(segment.gradient_shard()));
    for (std::size_t s = 0; s < states_.size(); ++s) {
      const Slice values = segment.layout().own_state(states_[s].form, parameters[p]);
      const at::Tensor& state = segment.state(states_[s].name, states_[s].form);
      batch.states[s].push_back(values.length > 0 ? values.in(state) : at::Tensor());
    }
    batch.infos.push_back(parameters[p]);
    batch.begins.push_back(slice.begin);
    batch.places.push_back(place);
    batch.steps.push_back(counts_.select(0, static_cast<std::int64_t>(place)));
  }
}

Optimizer::Batch& Optimizer::batch_of(const ParameterGroup& group) {
  const auto found = std::find_if(batches_.begin(), batches_.end(), [&](const Batch& b) { return b.group == group; });
  if (found != batches_.end()) return *found;
  Batch& batch = batches_.emplace_back();
  batch.group = group;
  batch.states.resize(states_.size());
  return batch;
}

void Optimizer::keep_average(double decay) {
  TORCH_CHECK(decay > 0 && decay < 1, "optimizer ", name_, ": decay ", decay,
              " of the average: want above 0 and below 1");
  TORCH_CHECK(!keeps_average(), "optimizer ", name_, " keeps an average already");
  average_decay_ = decay;
  make_state(states_.emplace_back(kAverageState));
  origins_.clear();  // the lists lack it
}

// average += (1 - d) / (1 - d^n) x (weights - average). Where nothing was updated the factor is 0.
void Optimizer::update_averages(const at::Tensor& found_inf) {
  at::Tensor factors = counts_.clamp_min(1).mul_(std::log(average_decay_)).expm1_().reciprocal_();
  factors.mul_(average_decay_ - 1);
  if (found_inf.defined()) factors.mul_(at::rsub(found_inf, 1));
  for (Batch& batch : batches_) {
    for (std::size_t i = 0; i < batch.parameters.size(); ++i)
      batch.states.back()[i].lerp_(batch.parameters[i], factors.select(0, static_cast<std::int64_t>(batch.places[i])));
  }
}

void Optimizer::exchange_average() {
  TORCH_CHECK(keeps_average(), "optimizer ", name_, " keeps no average; keep_average() before the first step");
  const at::NoGradGuard no_grad;
  model_.await_copies();
  const StepCounts counts = parameter_steps();
  for (const auto& [unit, segment, parameter] : model_.parameters()) {
    const Slice slice = segment.layout().own(parameter);
    if (counts[unit][parameter.index] == 0 || slice.length == 0) continue;
    const at::Tensor weights = slice.in(segment.shard()), average = slice.in(segment.state(kAverageState));
    const at::Tensor kept = weights.clone();
    weights.copy_(average);
    average.copy_(kept);
  }
  for (const auto& unit : model_.units()) unit->shard_changed();
  exchanged_ = !exchanged_;
}

void Optimizer::check_own_weights(const char* what) const {
  TORCH_CHECK(!exchanged_, "optimizer ", name_, ": the model has its average weights; exchange_average() before ",
              what);
}

Optimizer::StepCounts Optimizer::parameter_steps() const {
  const at::Tensor flat = counts_.to(at::kCPU, at::kLong);
  const auto* first = flat.const_data_ptr<std::int64_t>();
  StepCounts counts;
  for (std::size_t u = 0; u < first_of_unit_.size(); ++u) {
    const std::size_t end = u + 1 < first_of_unit_.size() ? first_of_unit_[u + 1] : groups_.size();
    counts.emplace_back(first + first_of_unit_[u], first + end);
  }
  return counts;
}

void Optimizer::set_parameter_steps(const StepCounts& counts) {
  std::vector<float> flat;
  for (const auto& unit : counts) flat.insert(flat.end(), unit.begin(), unit.end());
  TORCH_CHECK(flat.size() == groups_.size(), "optimizer ", name_, ": step counts of ", flat.size(),
              " parameters, the model has ", groups_.size());
  const at::NoGradGuard no_grad;
  counts_.copy_(at::tensor(flat));
}

std::int64_t Optimizer::state_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& unit : model_.units())
    for (const auto& segment : unit->segments())
      for (const auto& [name, state] : segment->states()) bytes += static_cast<std::int64_t>(state.nbytes());
  return bytes;
}

Optimizer::Batch Optimizer::part_of(const Batch& batch, const std::function<bool(std::size_t)>& takes) {
  Batch part;
  part.group = batch.group;
  part.states.resize(batch.states.size());
  for (std::size_t i = 0; i < batch.parameters.size(); ++i) {
    if (!takes(i)) continue;
    part.parameters.push_back(batch.parameters[i]);
    part.gradients.push_back(batch.gradients[i]);
    part.steps.push_back(batch.steps[i]);
    part.places.push_back(batch.places[i]);
    part.infos.push_back(batch.infos[i]);
    part.begins.push_back(batch.begins[i]);
    for (std::size_t s = 0; s < batch.states.size(); ++s) part.states[s].push_back(batch.states[s][i]);
  }
  return part;
}

void Optimizer::fused_adam(const Batch& batch, std::size_t first_moment, const Betas& betas, double eps,
                           bool decoupled_weight_decay, const Update& update) {
  const auto make = [&](const auto& call, const auto& lr) {
    call(batch.parameters, batch.gradients, batch.states[first_moment], batch.states[first_moment + 1], {}, batch.steps,
         lr, betas.first, betas.second, update.weight_decay, eps, /*amsgrad=*/false, /*maximize=*/false,
         update.grad_scale, update.found_inf);
  };
  if (update.lr_on_device) {
    make(decoupled_weight_decay ? at::_ops::_fused_adamw__tensor_lr::call : at::_ops::_fused_adam__tensor_lr::call,
         *update.lr_on_device);
  } else {
    make(decoupled_weight_decay ? at::_ops::_fused_adamw_::call : at::_ops::_fused_adam_::call, update.lr);
  }
}

Adam::Adam(ShardedModel& model, const AdamOptions& options) : Adam(model, "adam", options, false) {}

Adam::Adam(ShardedModel& model, const char* name, const AdamOptions& options, bool decoupled_weight_decay)
    : Optimizer(model, name, states_of(options.moments), options.weight_decay, options.group),
      betas_{options.beta1, options.beta2},
      eps_(options.eps),
      decoupled_weight_decay_(decoupled_weight_decay),
      moments_(options.moments),
      seed_(options.seed) {}

void Adam::update(Batch& batch, const Update& update) {
  const Betas betas = batch.group.betas.value_or(betas_);
  if (moments_ == Moments::kFp32) return fused_adam(batch, 0, betas, eps_, decoupled_weight_decay_, update);
  const auto is_plain = [&](std::size_t i) { return has_plain_moments(moments_, batch.infos[i]); };
  const Batch plain = part_of(batch, is_plain), small = part_of(batch, [&](std::size_t i) { return !is_plain(i); });
  if (!plain.parameters.empty()) fused_adam(plain, 0, betas, eps_, decoupled_weight_decay_, update);
  if (!small.parameters.empty()) update_small(small, update);
}

/// Moments of fewer bits are updated parameter by parameter, each in one pass.
void Adam::update_small(const Batch& batch, const Update& update) const {
  if (update.found_inf && update.found_inf->item<float>() != 0) return;
  const Betas betas = batch.group.betas.value_or(betas_);
  const at::Tensor steps = at::stack(batch.steps).to(at::kCPU);
  AdamStep step;
  step.beta1 = betas.first;
  step.beta2 = betas.second;
  step.eps = eps_;
  step.decay = decoupled_weight_decay_ ? update.lr * update.weight_decay : 0;
  step.penalty = decoupled_weight_decay_ ? 0 : update.weight_decay;
  if (update.grad_scale) step.grad_scale = update.grad_scale->item<double>();
  for (std::size_t i = 0; i < batch.parameters.size(); ++i) {
    const double n = steps.const_data_ptr<float>()[i];
    step.size = update.lr / (1 - std::pow(betas.first, n));
    step.root = std::sqrt(1 - std::pow(betas.second, n));
    SmallMoments moments{batch.parameters[i], batch.gradients[i], {}, batch.begins[i]};
    for (const auto& state : batch.states) moments.states.push_back(state[i]);
    update_moments(moments_, moments, step, random_key(seed_, batch.infos[i].name, static_cast<std::uint64_t>(n)));
  }
}

AdamW::AdamW(ShardedModel& model, const AdamWOptions& options) : Adam(model, "adamw", options, true) {}

Lion::Lion(ShardedModel& model, const LionOptions& options)
    : Optimizer(model, "lion", {"exp_avg"}, options.weight_decay, options.group),
      betas_{options.beta1, options.beta2} {}

void Lion::update(Batch& batch, const Update& update) {
  if (update.found_inf && update.found_inf->item<float>() != 0) return;
  if (update.grad_scale) at::_foreach_div_(batch.gradients, update.grad_scale->reshape({}));
  const Betas betas = batch.group.betas.value_or(betas_);
  std::vector<at::Tensor>& averages = batch.states[0];
  std::vector<at::Tensor> direction = at::_foreach_mul(averages, betas.first);
  at::_foreach_add_(direction, batch.gradients, 1 - betas.first);
  at::_foreach_sign_(direction);
  at::_foreach_mul_(batch.parameters, 1 - update.lr * update.weight_decay);
  at::_foreach_add_(batch.parameters, direction, -update.lr);
  at::_foreach_mul_(averages, betas.second);
  at::_foreach_add_(averages, batch.gradients, 1 - betas.second);
}

using States = std::vector<StateSpec>;

Sgd::Sgd(ShardedModel& model, const SgdOptions& options)
    : Optimizer(model, "sgd", options.momentum == 0 ? States{} : States{"momentum_buffer"}, options.weight_decay,
                options.group),
      momentum_(options.momentum),
      dampening_(options.dampening),
      nesterov_(options.nesterov) {
  TORCH_CHECK(!nesterov_ || (momentum_ > 0 && dampening_ == 0), "sgd: nesterov with momentum ", momentum_,
              " and dampening ", dampening_, "; want momentum above 0 and dampening 0");
}

void Sgd::update(Batch& batch, const Update& update) {
  const auto call = [&](at::TensorList parameters, at::TensorList gradients, at::TensorList buffers, bool first) {
    const auto make = [&](const auto& lr) {
      at::_fused_sgd_(parameters, gradients, buffers, update.weight_decay, momentum_, lr, dampening_, nesterov_,
                      /*maximize=*/false, first, update.grad_scale, update.found_inf);
    };
    if (parameters.empty()) return;
    if (update.lr_on_device) return make(*update.lr_on_device);
    make(update.lr);
  };
  if (momentum_ == 0) return call(batch.parameters, batch.gradients, {}, false);
  // Without dampening a first gradient enters the average like any other, as the buffer is zero.
  if (dampening_ == 0) return call(batch.parameters, batch.gradients, batch.states[0], false);
  const at::Tensor steps = at::stack(batch.steps).to(at::kCPU);
  struct {
    std::vector<at::Tensor> parameters, gradients, buffers;
  } first, later;
  for (std::size_t i = 0; i < batch.parameters.size(); ++i) {
    auto& lists = steps.const_data_ptr<float>()[i] <= 1 ? first : later;
    lists.parameters.push_back(batch.parameters[i]);
    lists.gradients.push_back(batch.gradients[i]);
    lists.buffers.push_back(batch.states[0][i]);
  }
  call(first.parameters, first.gradients, first.buffers, true);
  call(later.parameters, later.gradients, later.buffers, false);
}

}  // namespace fsdp
