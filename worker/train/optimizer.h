#pragma once

#include <memory>

#include "fsdp/optimizer.h"
#include "train/config.h"
#include "train/recipe.h"

namespace worker {

/// The optimizer that the run file asks for. Matrices decay, norms and biases do not. train.layer_decay lowers the rate
/// by Recipe::layers_above(). `model` must outlive the optimizer.
std::unique_ptr<fsdp::Optimizer> make_optimizer(const schema::Optimizer& options, const Recipe& recipe,
                                                fsdp::ShardedModel& model);

}  // namespace worker
