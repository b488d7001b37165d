#include "worker/train/optimizer_of_run.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/usage_error.h"
#include "fsdp/optim/adafactor.h"
#include "fsdp/optim/muon.h"

namespace worker {
namespace {

/// Share that a schedule from 1 to 0 has left after `done` of `span` steps.
double left_of_line(std::int64_t done, std::int64_t span) {
  return 1.0 - std::min(1.0, static_cast<double>(done) / static_cast<double>(std::max<std::int64_t>(1, span)));
}

double left_of_cosine(std::int64_t done, std::int64_t span) {
  return 0.5 * (1.0 - std::cos(std::numbers::pi * left_of_line(done, span)));
}

double between(double last, double first, double left) {
  return last + (first - last) * left;
}

constexpr const char* kMember = "grad_scaler";

template <class Options>
Options with_betas(const spec::Optimizer& from, const fsdp::GroupOf& group) {
  Options options;
  options.beta1 = from.beta1;
  options.beta2 = from.beta2;
  options.weight_decay = from.weight_decay;
  options.group = group;
  return options;
}

fsdp::Moments moments_of(const spec::Optimizer& options) {
  switch (options.moments) {
    case spec::MomentsFormat::kBf16:
      return fsdp::Moments::kBf16;
    case spec::MomentsFormat::kInt8:
      return fsdp::Moments::kInt8;
    case spec::MomentsFormat::kFp32:
      break;
  }
  return fsdp::Moments::kFp32;
}

template <class Options>
Options adam_options(const spec::Optimizer& from, std::int64_t seed, const fsdp::GroupOf& group) {
  auto options = with_betas<Options>(from, group);
  options.eps = from.epsilon;
  options.moments = moments_of(from);
  options.seed = static_cast<std::uint64_t>(seed);
  return options;
}

std::unique_ptr<fsdp::Optimizer> of_kind(const spec::Optimizer& options, std::int64_t seed, const fsdp::GroupOf& group,
                                         fsdp::ShardedModel& model) {
  switch (options.kind) {
    case spec::OptimizerKind::kAdamW:
      return std::make_unique<fsdp::AdamW>(model, adam_options<fsdp::AdamWOptions>(options, seed, group));
    case spec::OptimizerKind::kAdam:
      return std::make_unique<fsdp::Adam>(model, adam_options<fsdp::AdamOptions>(options, seed, group));
    case spec::OptimizerKind::kLion:
      return std::make_unique<fsdp::Lion>(model, with_betas<fsdp::LionOptions>(options, group));
    case spec::OptimizerKind::kAdafactor: {
      fsdp::AdafactorOptions adafactor;
      adafactor.weight_decay = options.weight_decay;
      adafactor.group = group;
      return std::make_unique<fsdp::Adafactor>(model, adafactor);
    }
    case spec::OptimizerKind::kMuon: {
      auto muon = with_betas<fsdp::MuonOptions>(options, group);
      muon.eps = options.epsilon;
      muon.momentum = options.momentum;
      muon.nesterov = options.nesterov;
      return std::make_unique<fsdp::Muon>(model, muon);
    }
    case spec::OptimizerKind::kSgd:
      break;
  }
  fsdp::SgdOptions sgd;
  sgd.momentum = options.momentum;
  sgd.dampening = options.dampening;
  sgd.nesterov = options.nesterov;
  sgd.weight_decay = options.weight_decay;
  sgd.group = group;
  return std::make_unique<fsdp::Sgd>(model, sgd);
}

}  // namespace

double learning_rate(const spec::Training& c, std::int64_t step) {
  if (step < c.warmup_steps) {
    return c.learning_rate * static_cast<double>(step + 1) / static_cast<double>(c.warmup_steps);
  }
  const std::int64_t done = step - c.warmup_steps, span = c.steps - c.warmup_steps;
  switch (c.schedule) {
    case spec::LearningRateSchedule::kConstant:
      break;
    case spec::LearningRateSchedule::kCosine:
      return between(c.min_learning_rate, c.learning_rate, left_of_cosine(done, span));
    case spec::LearningRateSchedule::kLinear:
      return between(c.min_learning_rate, c.learning_rate, left_of_line(done, span));
    case spec::LearningRateSchedule::kStep:
      return std::max(c.min_learning_rate,
                      c.learning_rate * std::pow(c.gamma, static_cast<double>(done / c.step_size)));
  }
  return c.learning_rate;
}

double weight_decay(const spec::Optimizer& o, const spec::Training& c, std::int64_t step) {
  switch (o.weight_decay_schedule) {
    case spec::WeightDecaySchedule::kConstant:
      break;
    case spec::WeightDecaySchedule::kCosine:
      return between(o.final_weight_decay, o.weight_decay, left_of_cosine(step, c.steps));
    case spec::WeightDecaySchedule::kLinear:
      return between(o.final_weight_decay, o.weight_decay, left_of_line(step, c.steps));
  }
  return o.weight_decay;
}

bool evaluates(const spec::Training& c, double epochs_a_step, std::int64_t step) {
  const std::int64_t every = c.validation_every_steps;
  if (every == 0 && c.validation_every_epochs == 0) return false;
  const auto periods = [&](std::int64_t steps) {
    return std::floor(static_cast<double>(steps) * epochs_a_step / c.validation_every_epochs);
  };
  const bool by_epochs = c.validation_every_epochs > 0 && periods(step) > periods(step - 1);
  return step == c.steps || by_epochs || (every > 0 && step % every == 0);
}

LossScale::LossScale(const spec::Training& train, at::Device device) : train_(train) {
  if (train.precision != spec::Precision::kFp16) return;
  fsdp::GradScalerOptions options;
  options.min_scale = kFloor;
  scaler_.emplace(device, options);
}

at::Tensor LossScale::scaled(const at::Tensor& loss) const {
  return scaler_ ? scaler_->scale(loss) : loss;
}

fsdp::GradientNorm LossScale::gradient_norm(fsdp::ShardedModel& sharded) const {
  const double order = spec::norm_order(train_.clip_norm_type);
  return scaler_ ? scaler_->gradient_norm(sharded, train_.clip_norm, order)
                 : fsdp::gradient_norm(sharded, train_.clip_norm, order);
}

std::optional<at::Tensor> LossScale::value() const {
  return scaler_ ? std::optional(scaler_->scale()) : std::nullopt;
}

void LossScale::update(const fsdp::GradientNorm& norm) {
  if (scaler_) scaler_->update(norm.found_inf);
}

void LossScale::save(fsdp::Json& extra) const {
  if (scaler_) extra[kMember] = scaler_->state();
}

void LossScale::load(const fsdp::Json& extra) {
  const fsdp::Json* saved = extra.find(kMember);
  if (scaler_ && saved != nullptr) scaler_->load(*saved);
}

std::unique_ptr<fsdp::Optimizer> make_optimizer(const RunConfig& config, const Part& part, fsdp::ShardedModel& model) {
  const spec::Optimizer& options = config.optimizer;
  fsdp::GroupOf group = part.group ? part.group : fsdp::decay_matrices;
  if (options.layer_decay != 1) {
    if (!part.layers_above)
      throw base::UsageError("train.layer_decay: this recipe counts no layers; leave the key out");
    group = fsdp::with_layer_rates(group, options.layer_decay,
                                   [layers_above = part.layers_above](const fsdp::ParameterInfo& parameter) {
                                     return layers_above(parameter.name);
                                   });
  }
  auto optimizer = of_kind(options, config.train.seed, group, model);
  if (options.average_decay > 0) optimizer->keep_average(options.average_decay);
  return optimizer;
}

}  // namespace worker
