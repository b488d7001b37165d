#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>

#include "fsdp/engine/fully_shard.h"
#include "fsdp/optim/optimizer.h"

namespace worker {

/// One model of a recipe: the one that is trained, or another beside it, such as a teacher. A part is sharded,
/// saved and loaded as a whole.
///
/// [Note: units of a part] The module and those of its modules that become units must be Wrapped
/// (worker/models/layers/wrapped.h): their calls go through a wrapper that the engine sets. Of Blocks each is a unit,
/// unless fsdp.wrap says otherwise. Part::is_unit adds others. The module itself is the last unit, the root.
struct Part {
  std::string name = "model";                 ///< in checkpoints
  std::shared_ptr<torch::nn::Module> module;  ///< Wrapped; its parameters may be on the meta device
  /// Whether the optimizer moves it. One part of a recipe is trained. All calls of the others must be made without
  /// gradients (at::NoGradGuard).
  bool trained = true;
  /// Whether a module is a unit beside those of fsdp.wrap, because its options differ. Null: none is.
  std::function<bool(const torch::nn::Module& module)> is_unit = {};
  /// The options of one unit, from those of the run: another precision, for example. Null: those of the run.
  std::function<fsdp::ShardOptions(const torch::nn::Module& unit, fsdp::ShardOptions of_run)> options = {};
  /// Parameters of equal settings of the optimizer. Null: matrices decay, norms and biases do not.
  fsdp::GroupOf group = {};
  /// How many layers lie between a parameter and the output, for train.layer_decay. Null: none.
  std::function<int(const std::string& parameter)> layers_above = {};
  /// Whether checkpoints hold a parameter. Null: all of them. The others must get their values from elsewhere.
  std::function<bool(const std::string& parameter)> saved = {};
};

}  // namespace worker
