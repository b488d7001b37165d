#pragma once
#include "fsdp/optim/optimizer.h"

namespace fsdp {

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

}  // namespace fsdp
