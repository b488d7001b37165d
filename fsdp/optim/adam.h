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

}  // namespace fsdp
