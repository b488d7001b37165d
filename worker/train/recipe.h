#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/fully_shard.h"
#include "train/config.h"

namespace worker {

/// What is trained: data, model and loss. The loop in train/loop.h does the rest and knows none of them.
///
/// Calls come in this order: load_data, make_module, shard, then loss any number of times.
class Recipe {
 public:
  virtual ~Recipe() = default;

  /// Which data the run file asks for. What is found there may differ from one day to the next.
  virtual std::string data_source() const = 0;
  /// Opens the data. `began_with`: the fingerprint of what the run began with if it asked for the same source, else
  /// empty; that data is taken wherever it is kept, even where the source holds other data by now or is gone. Throws
  /// UsageError when it can't ever work. Not collective.
  virtual void load_data(const std::string& began_with) = 0;
  /// Names the data: ranks with another text must not train together, a run must not go on with another text.
  virtual std::string data_fingerprint() const = 0;
  /// What people should know of where the data came from; mostly empty.
  virtual std::string data_note() const = 0;
  /// What the data is, for people.
  virtual std::string data_name() const = 0;
  /// Samples are numbered from 0, those for validation last.
  virtual std::int64_t train_samples() const = 0;
  virtual std::int64_t validation_samples() const = 0;
  virtual std::int64_t tokens_per_sample() const = 0;

  /// Builds the model, initialised by the run's seed: equal on every rank.
  virtual std::shared_ptr<torch::nn::Module> make_module() = 0;
  /// Makes the units, the root's last, and puts them around the model's calls.
  virtual void shard(fsdp::ShardedModel& sharded, const fsdp::ShardOptions& options) = 0;
  /// The mean loss of these samples, a scalar that backward can start from. Collective through the units.
  virtual at::Tensor loss(const std::vector<std::int64_t>& samples) = 0;
};

/// How the run's units are sharded: what its "train.precision" and "fsdp" mean to the engine.
fsdp::ShardOptions shard_options(const RunConfig& config);

/// The recipe that the run names. `config` must outlive it. Throws UsageError listing the recipes there are.
std::unique_ptr<Recipe> make_recipe(const RunConfig& config);

}  // namespace worker
