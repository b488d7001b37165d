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
  /// Which parameters decay. The default: those with two or more dims, so not norms and biases.
  std::function<bool(const ParameterInfo&)> decays = [](const ParameterInfo& p) { return p.shape.size() >= 2; };
};

/// AdamW on the shards: fp32 master, fp32 states, two fused calls a step for the whole model (with and without decay).
/// The arithmetic per element is that of torch.optim.AdamW(fused=True).
///
/// A parameter that took no part in backward has a zero gradient, so it decays and its averages fade. A unit without
/// any gradient is left alone, and its parameters' steps don't count: the correction of their averages' bias goes by
/// the updates each has had itself. `model` must outlive it; make it after the last fully_shard().
class AdamW {
 public:
  explicit AdamW(ShardedModel& model, AdamWOptions options = {});

  /// One update with learning rate `lr`, then gathered copies are dropped. Gradients stay: call zero_grad() after it.
  /// Not collective.
  void step(double lr);

  /// Calls of step() so far. Part of a checkpoint, as are the steps of each parameter.
  std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }
  /// Updates that model.units()[unit].layout().parameters()[parameter] has had; the same on every rank.
  std::int64_t steps(std::size_t unit, std::size_t parameter) const { return states_.at(unit).steps.at(parameter); }
  void set_steps(std::size_t unit, std::size_t parameter, std::int64_t steps) {
    states_.at(unit).steps.at(parameter) = steps;
  }

  /// The states of model.units()[unit], fp32 [chunk], laid out as the unit's shard.
  const at::Tensor& exp_avg(std::size_t unit) const { return states_.at(unit).exp_avg; }
  const at::Tensor& exp_avg_sq(std::size_t unit) const { return states_.at(unit).exp_avg_sq; }
  /// Bytes of the states on this rank.
  std::int64_t state_bytes() const;

 private:
  struct UnitState {
    at::Tensor exp_avg;
    at::Tensor exp_avg_sq;
    std::vector<std::int64_t> steps;  // of each parameter; frozen ones stay at 0
  };
  /// Tensor lists for one fused call; made anew each step because gradients move.
  struct Batch;
  Batch batch(bool decayed) const;
  void count_steps();

  ShardedModel& model_;
  AdamWOptions options_;
  std::vector<UnitState> states_;
  std::int64_t steps_ = 0;
};

}  // namespace fsdp
