#pragma once

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fsdp/comm/device_mesh.h"
#include "fsdp/engine/fully_shard.h"
#include "fsdp/engine/host_activations.h"
#include "fsdp/files/checkpoint.h"
#include "fsdp/optim/optimizers.h"
#include "worker/train/train_config.h"

namespace worker {

/// One model of a recipe: the one that is trained, or another beside it, such as a teacher. A part is sharded,
/// saved and loaded as a whole.
///
/// [Note: units of a part] The module and those of its modules that become units must be Wrapped
/// (worker/models/layers/layers.h): their calls go through a wrapper that the engine sets. Of Blocks each is a unit,
/// unless fsdp.wrap says otherwise. Part::is_unit adds others. The module itself is the last unit, the root.
struct Part {
  std::string name = "model";                 ///< in checkpoints
  std::shared_ptr<torch::nn::Module> module;  ///< Wrapped; its parameters may be on the meta device
  /// True if the optimizer moves the part. One part of a recipe is trained. All calls of the others must be made
  /// without gradients (at::NoGradGuard).
  bool trained = true;
  /// Tells whether a module is a unit beside those of fsdp.wrap, because its options differ. Null: none is.
  std::function<bool(const torch::nn::Module& module)> is_unit = {};
  /// The options of one unit, from those of the run: another precision, for example. Null: those of the run.
  std::function<fsdp::ShardOptions(const torch::nn::Module& unit, fsdp::ShardOptions of_run)> options = {};
  /// Parameters of equal settings of the optimizer. Null: matrices decay, norms and biases do not.
  fsdp::GroupOf group = {};
  /// How many layers lie between a parameter and the output, for train.layer_decay. Null: none.
  std::function<int(const std::string& parameter)> layers_above = {};
  /// Tells whether checkpoints hold a parameter. Null: all of them. The others must get their values from elsewhere.
  std::function<bool(const std::string& parameter)> saved = {};
};

/// A recipe's parts, sharded over the ranks as the run file asks, and the optimizer of the trained one.
class Parts {
 public:
  /// Makes units (see [Note: units of a part] in worker/train/train_parts.h), recomputes activations as
  /// fsdp.activation_checkpointing asks, and makes the optimizer. Not collective. Throws base::UsageError naming a key
  /// that does not fit the part, and c10::Error for a module without a wrapper. `mesh` must outlive the object.
  Parts(std::vector<Part> parts, fsdp::DeviceMesh& mesh, const RunConfig& config);
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  /// The model that is trained.
  fsdp::ShardedModel& trained() { return *models_[trained_]; }
  const fsdp::ShardedModel& trained() const { return *models_[trained_]; }
  fsdp::Optimizer& optimizer() { return *optimizer_; }
  const fsdp::Optimizer& optimizer() const { return *optimizer_; }
  /// The part of this name. Throws std::logic_error for a name that no part has.
  fsdp::ShardedModel& model(std::string_view name);
  std::vector<fsdp::ShardedModel*> models();

  fsdp::DeviceMesh& mesh() { return mesh_; }

  /// Parts that a checkpoint holds.
  std::vector<fsdp::CheckpointPart> checkpointed();

  /// True if checkpoints hold a part without some of its parameters.
  bool leave_out_parameters() const;

  /// Sets the trained module to training, or to evaluation, in which nothing is dropped out. The others are always in
  /// evaluation.
  void set_training(bool on);

  // Sums over the parts, in bytes.
  std::int64_t parameter_bytes() const;
  std::int64_t gradient_bytes() const;
  std::int64_t pool_bytes() const;

  /// The most bytes of activations that waited in the host's memory: fsdp.activation_offload.
  std::int64_t host_activation_bytes() const;

 private:
  void freeze(const Part& part, const std::string& beginnings) const;
  void shard(const Part& part, const RunConfig& config);

  fsdp::DeviceMesh& mesh_;
  std::vector<Part> parts_;
  std::vector<std::unique_ptr<fsdp::ShardedModel>> models_;
  std::size_t trained_ = 0;
  std::unique_ptr<fsdp::Optimizer> optimizer_;
  std::shared_ptr<fsdp::HostActivations> host_activations_;  // null: activations stay on the device
};

}  // namespace worker
