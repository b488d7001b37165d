#pragma once

#include <memory>
#include <utility>

#include "fsdp/engine/gradient_place.h"
#include "fsdp/engine/recompute.h"
#include "fsdp/engine/unit.h"
#include "worker/models/call_wrapper.h"
#include "worker/models/ops.h"

// What the engine does around a call of a model's part, as wrappers.
namespace worker {

/// A sharding unit as a wrapper. From now on the models' functions write gradients to where the engine wants them.
inline CallWrapper wrapper_of(std::shared_ptr<fsdp::Unit> unit) {
  use_gradient_places(&fsdp::place_of_gradient);
  return [unit = std::move(unit)](Tensors inputs, const Forward& forward) {
    return unit->run_list(std::move(inputs), forward);
  };
}

/// Activation checkpointing as a wrapper. `module` owns the wrapper, or what owns it.
inline CallWrapper recomputing(const torch::nn::Module& module) {
  return
      [&module](Tensors inputs, const Forward& forward) { return fsdp::recompute(std::move(inputs), forward, module); };
}

}  // namespace worker
