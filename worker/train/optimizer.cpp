#include "worker/train/optimizer.h"

#include "base/usage_error.h"
#include "fsdp/optim/adam.h"
#include "fsdp/optim/lion.h"
#include "fsdp/optim/sgd.h"

namespace worker {
namespace {

template <class Options>
Options with_betas(const spec::Optimizer& from, const fsdp::GroupOf& group) {
  Options options;
  options.beta1 = from.beta1;
  options.beta2 = from.beta2;
  options.weight_decay = from.weight_decay;
  options.group = group;
  return options;
}

template <class Options>
Options adam_options(const spec::Optimizer& from, const fsdp::GroupOf& group) {
  auto options = with_betas<Options>(from, group);
  options.eps = from.epsilon;
  return options;
}

std::unique_ptr<fsdp::Optimizer> of_kind(const spec::Optimizer& options, const fsdp::GroupOf& group,
                                         fsdp::ShardedModel& model) {
  switch (options.kind) {
    case spec::OptimizerKind::kAdamW:
      return std::make_unique<fsdp::AdamW>(model, adam_options<fsdp::AdamWOptions>(options, group));
    case spec::OptimizerKind::kAdam:
      return std::make_unique<fsdp::Adam>(model, adam_options<fsdp::AdamOptions>(options, group));
    case spec::OptimizerKind::kLion:
      return std::make_unique<fsdp::Lion>(model, with_betas<fsdp::LionOptions>(options, group));
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

std::unique_ptr<fsdp::Optimizer> make_optimizer(const spec::Optimizer& options, const Part& part,
                                                fsdp::ShardedModel& model) {
  fsdp::GroupOf group = part.group ? part.group : fsdp::decay_matrices;
  if (options.layer_decay != 1) {
    if (!part.layers_above)
      throw base::UsageError("train.layer_decay: this recipe counts no layers; leave the key out");
    group = fsdp::with_layer_rates(group, options.layer_decay,
                                   [layers_above = part.layers_above](const fsdp::ParameterInfo& parameter) {
                                     return layers_above(parameter.name);
                                   });
  }
  auto optimizer = of_kind(options, group, model);
  if (options.average_decay > 0) optimizer->keep_average(options.average_decay);
  return optimizer;
}

}  // namespace worker
