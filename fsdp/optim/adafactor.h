#pragma once
#include <vector>

#include "fsdp/optim/optimizers.h"

namespace fsdp {

struct AdafactorOptions {
  /// Shrinks the weights themselves.
  double weight_decay = 0;
  GroupOf group = decay_matrices;
};

/// Adafactor (Shazeer and Stern, arXiv 1804.04235) as torch.optim.Adafactor defines it, with its defaults beta2_decay =
/// -0.8, eps = (2^-23, 1e-3) and d = 1: the rate is relative to the weights' root mean square, at most 1 / sqrt(step),
/// and an update's root mean square is at most 1. transformers' Adafactor with scale_parameter = True and relative_step
/// = False differs: it has no such limit of the rate, and adds eps to squares.
///
/// States: of a parameter with two or more dims the averages of squared gradients over each row and each column of its
/// last two dims, "row_var" and "col_var", which every rank has whole; of others "variance", as the shard. So a matrix
/// of R x C elements takes R + C values in place of AdamW's 2 R C.
///
/// A step makes two all-reduces over the ranks of a shard, of the sums over rows and columns of all parameters, and of
/// a number a parameter. So unlike other optimizers' it is collective. It reads found_inf and the norms of the weights,
/// and so waits for the device. It needs the memory of a piece of 2^20 elements, or of a row, for a moment.
class Adafactor : public Optimizer {
 public:
  explicit Adafactor(ShardedModel& model, const AdafactorOptions& options = {});
  std::string host_reads() const override { return "found_inf and norms of the weights"; }

 private:
  void update_together(const std::vector<Updated>& all, const RateOf& rate, const Update& update) override;
};

}  // namespace fsdp
