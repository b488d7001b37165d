#pragma once

#include "fsdp/optim/optimizer.h"

namespace fsdp {

struct AdamOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  GroupOf group = decay_matrices;
};

/// Adam (Kingma and Ba, arXiv 1412.6980). Weight decay is added to the gradient. The arithmetic of each element is that
/// of torch.optim.Adam(fused=True). The bias correction of a parameter uses the parameter's own step count. States:
/// "exp_avg" and "exp_avg_sq". A step makes one fused call a group.
class Adam : public Optimizer {
 public:
  explicit Adam(ShardedModel& model, const AdamOptions& options = {});

 protected:
  Adam(ShardedModel& model, const char* name, const AdamOptions& options, bool decoupled_weight_decay);
  void update(Batch& batch, const Update& update) override;

 private:
  const Betas betas_;
  const double eps_;
  const bool decoupled_weight_decay_;
};

struct AdamWOptions : AdamOptions {
  AdamWOptions() {
    beta2 = 0.95;
    weight_decay = 0.1;
  }
};

/// AdamW (Loshchilov and Hutter, arXiv 1711.05101): Adam whose weight decay shrinks the weights themselves. The
/// arithmetic of each element is that of torch.optim.AdamW(fused=True).
class AdamW : public Adam {
 public:
  explicit AdamW(ShardedModel& model, const AdamWOptions& options = {});
};

struct LionOptions {
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;
  GroupOf group = decay_matrices;
};

/// Lion (Chen et al., Symbolic Discovery of Optimization Algorithms, arXiv 2302.06675, program 1): steps by the sign of
/// an average, and decays the weights themselves. Its rate is usually 3 to 10 times smaller than AdamW's, and its decay
/// as much larger. State: "exp_avg", half of what AdamW holds. A step needs the memory of one more shard for a moment.
/// A step with found_inf reads found_inf, and so waits for the device.
class Lion : public Optimizer {
 public:
  explicit Lion(ShardedModel& model, const LionOptions& options = {});
  std::string host_reads() const override { return "found_inf"; }

 private:
  void update(Batch& batch, const Update& update) override;

  const Betas betas_;
};

struct SgdOptions {
  /// Decay rate of the average of gradients. 0: no average, and no state.
  double momentum = 0;
  /// The share of a new gradient that does not enter the average. The first gradient enters it whole.
  double dampening = 0;
  /// Looks ahead along the average. Needs momentum above 0 and dampening 0.
  bool nesterov = false;
  /// Added to the gradient.
  double weight_decay = 0;
  GroupOf group = decay_matrices;
};

/// Stochastic gradient descent with momentum (Sutskever et al., On the importance of initialization and momentum in
/// deep learning). The arithmetic of each element is that of torch.optim.SGD(fused=True). State: "momentum_buffer".
/// With dampening a step reads the step counts, and so waits for the device.
class Sgd : public Optimizer {
 public:
  /// Throws c10::Error for nesterov without momentum or with dampening.
  explicit Sgd(ShardedModel& model, const SgdOptions& options = {});
  std::string host_reads() const override { return momentum_ != 0 && dampening_ != 0 ? "step counts" : ""; }

 private:
  void update(Batch& batch, const Update& update) override;

  const double momentum_, dampening_;
  const bool nesterov_;
};

}  // namespace fsdp
