#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "fsdp/fully_shard.h"

namespace fsdp {

struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  /// Selects the parameters that get weight decay. The default selects those with two or more dims, so norms and biases
  /// do not decay.
  std::function<bool(const ParameterInfo&)> decays = [](const ParameterInfo& p) { return p.shape.size() >= 2; };
};

/// AdamW on the shards, with fp32 masters and fp32 states. A step makes two fused calls for the whole model: one with
/// weight decay, one without. The arithmetic of each element is that of torch.optim.AdamW(fused=True).
///
/// A parameter that took part in no rank's backward is left alone, as in torch.optim: it does not decay, and its
/// averages and step count stay. The bias correction of a parameter uses the parameter's own step count. The averages
/// lie in the segments as states "exp_avg" and "exp_avg_sq", so a model has one AdamW at a time. A parameter that never
/// trains has none. `model` must outlive the optimizer. Construct the optimizer after the last fully_shard().
class AdamW {
 public:
  explicit AdamW(ShardedModel& model, AdamWOptions options = {});

  /// Makes one update with learning rate `lr` and drops the gathered copies. Gradients stay, so call zero_grad()
  /// afterwards. Throws c10::Error when a backward of this step threw.
  /// Not collective.
  void step(double lr);

  /// The number of calls of step() so far. A checkpoint holds this number and the step counts of the parameters.
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }
  /// The number of updates of the parameter with this index (ParameterInfo::index) in model.units()[unit]; the same on
  /// every rank.
  std::int64_t steps(std::size_t unit, std::size_t parameter) const { return steps_of_.at(unit).at(parameter); }
  void set_steps(std::size_t unit, std::size_t parameter, std::int64_t steps) {
    steps_of_.at(unit).at(parameter) = steps;
  }

  /// Bytes of the states on this rank.
  std::int64_t state_bytes() const;

 private:
  /// Tensor lists of one fused call. Each step makes new ones, because gradients move.
  struct Batch;
  Batch batch(bool decayed) const;
  void count_steps();

  ShardedModel& model_;
  AdamWOptions options_;
  std::vector<std::vector<std::int64_t>> steps_of_;  // of each parameter of each unit
  std::int64_t steps_ = 0;
};

}  // namespace fsdp
