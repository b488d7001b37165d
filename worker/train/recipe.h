#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/fully_shard.h"
#include "train/config.h"

namespace worker {

/// A kind of training: data, model and loss. The loop in train/loop.h does everything else and knows nothing about
/// them.
///
/// Calls come in this order: load_data, make_module, shard, initialize unless a checkpoint has the weights, then loss
/// any number of times.
class Recipe {
 public:
  virtual ~Recipe() = default;

  /// The data that the run file asks for. The source's content may change over time.
  virtual std::string data_source() const = 0;
  /// Opens the data. `began_with` is the fingerprint of the data that the run began with, if the run asked for the same
  /// source; otherwise it is empty. A cache may still hold that data. It is used even where the source has changed or
  /// is gone. Throws UsageError when no retry can succeed. Not collective.
  virtual void load_data(const std::string& began_with) = 0;
  /// Identifies the data. Ranks with different data must not train together, and a run must not continue with other
  /// data.
  virtual std::string data_fingerprint() const = 0;
  /// A note for people about the data's origin; usually empty.
  virtual std::string data_note() const = 0;
  /// The data's name for people.
  virtual std::string data_name() const = 0;
  /// Samples are numbered from 0; validation samples come last.
  virtual std::int64_t train_samples() const = 0;
  virtual std::int64_t validation_samples() const = 0;
  virtual std::int64_t tokens_per_sample() const = 0;

  /// Builds the model. Its parameters may be without values, on the meta device.
  virtual std::shared_ptr<torch::nn::Module> make_module() = 0;
  /// Makes the units, the root last, and wraps the model's calls with them.
  virtual void shard(fsdp::ShardedModel& sharded, const fsdp::ShardOptions& options) = 0;
  /// Gives the sharded model the weights that training starts from, and says where they come from, for people. Throws
  /// UsageError when no retry can succeed. Not collective.
  virtual std::string initialize(fsdp::ShardedModel& sharded) = 0;
  /// The files that an export wants beside the weights of this dtype, such as config.json, by name.
  virtual std::map<std::string, std::string> export_texts(at::ScalarType dtype) const = 0;
  /// How many layers lie between a parameter and the output: 0 for the head, 1 for the last layer, and so on. For
  /// train.layer_decay.
  virtual int layers_above(const std::string& parameter) const = 0;
  /// By how much these samples count in a mean: the number of their targets, without masked ones and padding. Known
  /// from the data alone.
  virtual double weight(const std::vector<std::int64_t>& samples) = 0;
  /// The sum of the losses of these samples' targets, as a scalar for backward. Over all ranks and micro-batches of a
  /// step, the sum of all losses divided by the sum of all weights is the mean that is trained on. Collective through
  /// the units.
  virtual at::Tensor loss(const std::vector<std::int64_t>& samples) = 0;
  /// What loss() computes from, as tensors of the host: pinned ones where the model is on a GPU. Their shapes depend on
  /// the number of samples alone. Empty: the recipe cannot tell, so train.cuda_graph is refused.
  virtual std::vector<at::Tensor> inputs(const std::vector<std::int64_t>& /*samples*/) { return {}; }
  /// loss() of those tensors, which may be on the model's device. Reads nothing else, and the host waits for nothing in
  /// it, so that a graph can hold it.
  virtual at::Tensor loss_of(const std::vector<at::Tensor>& inputs);
  /// The loss of so many samples of the usual size and unknown content, by the same calls as loss(). Needs no data: for
  /// a plan, whose steps compute nothing.
  virtual at::Tensor loss_without_data(std::int64_t samples) = 0;
};

using MakeRecipe = std::function<std::unique_ptr<Recipe>(const RunConfig&)>;

/// The recipe that the run names. `config` must outlive it. Throws UsageError listing the existing recipes.
std::unique_ptr<Recipe> make_recipe(const RunConfig& config);

}  // namespace worker
