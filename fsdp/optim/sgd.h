#pragma once
#include "fsdp/optim/optimizer.h"

namespace fsdp {

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
