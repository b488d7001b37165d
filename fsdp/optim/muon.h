#pragma once
#include <functional>
#include <vector>

#include "fsdp/optim/optimizers.h"

namespace fsdp {

/// True for a parameter of two dims in a layer: its name has a number, as model.layers.0.mlp.up_proj.weight.
/// Embeddings, heads and tables of positions are none.
bool is_hidden_matrix(const ParameterInfo& parameter);

struct MuonOptions {
  /// Decay rate of the average of gradients.
  double momentum = 0.95;
  /// Looks ahead along the average.
  bool nesterov = true;
  /// Shrinks the weights themselves.
  double weight_decay = 0.1;
  /// AdamW's, for parameters that are no such matrices.
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  GroupOf group = decay_matrices;
  /// Tells which parameters Muon moves. They have two dims.
  std::function<bool(const ParameterInfo&)> is_matrix = is_hidden_matrix;
};

/// Muon (Jordan et al., https://kellerjordan.github.io/posts/muon/) as torch.optim.Muon defines it with adjust_lr_fn =
/// "match_rms_adamw": the step of a matrix is its average of gradients made orthogonal by five Newton-Schulz iterations
/// in bf16, times 0.2 sqrt(max(rows, columns)). So rate and weight decay are those of AdamW (Liu et al., Muon is
/// Scalable for LLM Training, arXiv 2502.16982). AdamW moves all other parameters.
///
/// States: "momentum_buffer" of matrices, half of what AdamW holds; "exp_avg" and "exp_avg_sq" of others.
///
/// A step gathers the averages of matrices, segment by segment in bf16, so unlike other optimizers' it is collective. A
/// rank computes those matrices of which it has an element. It needs the memory of a gathered segment in bf16, and of
/// four of its largest matrix, for a moment. It reads found_inf, and so waits for the device.
class Muon : public Optimizer {
 public:
  explicit Muon(ShardedModel& model, const MuonOptions& options = {});
  std::string host_reads() const override { return "found_inf"; }

 private:
  void update(Batch& batch, const Update& update) override;
  void update_together(const std::vector<Updated>& all, const RateOf& rate, const Update& update) override;
  void update_matrices(const std::vector<const Updated*>& of_segment, const RateOf& rate, const Update& update);

  const MuonOptions options_;
};

}  // namespace fsdp
