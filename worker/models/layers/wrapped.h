#pragma once

#include <torch/nn/module.h>

#include "worker/models/call_wrapper.h"

namespace worker {

/// What a module has that may be a sharding unit: its calls go through `wrapper`.
struct Wrapped {
  CallWrapper wrapper = call_directly;
};

/// One of a model's equal blocks: a unit of its own, with two parts that can be recomputed alone. The block calls its
/// attention, with the norm beside it, through `attention_wrapper` and its feed-forward part through `mlp_wrapper`,
/// both inside of `wrapper`.
class Block : public torch::nn::Module, public Wrapped {
 public:
  CallWrapper attention_wrapper = call_directly, mlp_wrapper = call_directly;
};

}  // namespace worker
