#pragma once

#include <memory>

#include "fsdp/optim/optimizer.h"
#include "worker/train/config.h"
#include "worker/train/part.h"

namespace worker {

/// The optimizer that the run file asks for, with the groups of the part. train.layer_decay lowers the rate by
/// Part::layers_above. `model` is that part, sharded, and must outlive the optimizer. Throws base::UsageError for a
/// train.layer_decay of a part that counts no layers.
std::unique_ptr<fsdp::Optimizer> make_optimizer(const spec::Optimizer& options, const Part& part,
                                                fsdp::ShardedModel& model);

}  // namespace worker
