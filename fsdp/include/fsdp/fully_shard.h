#pragma once
#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/device_mesh.h"
#include "fsdp/unit.h"

namespace fsdp {

/// Bytes on this rank. "now" and "peak" count what the engine itself allocates: gathered parameters and gradients, not
/// activations.
struct MemoryUse {
  std::int64_t shard_bytes = 0;           // fp32 masters, padding included
  std::int64_t gradient_shard_bytes = 0;  // reduced gradients
  std::int64_t gathered_bytes_now = 0;
  std::int64_t gathered_bytes_peak = 0;
  std::int64_t unreduced_bytes_now = 0;  // gradients before or during reduction
  std::int64_t unreduced_bytes_peak = 0;
};

/// A module whose parameters are sharded over a mesh: the units, in the order they were made, and what concerns all of
/// them. The module itself stays the caller's and keeps its tensors; only their storage changes hands.
///
///   fsdp::ShardedModel sharded(model, mesh);
///   for (auto& block : model->blocks) block->wrap = wrapper(sharded.fully_shard(block, options));
///   model->wrap = wrapper(sharded.fully_shard(model, root_options));
///
/// Not thread-safe; the collective rule of Unit holds for every method that says so. The mesh must outlive it.
class ShardedModel {
 public:
  /// `root` gives the parameters their names. Nothing is sharded yet.
  ShardedModel(std::shared_ptr<torch::nn::Module> root, DeviceMesh& mesh);
  ~ShardedModel();
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;

  /// Makes one unit of `module`'s parameters without those of units made before, so children come first. `module` must
  /// be the root or lie in it. Throws c10::Error when it does not, when a parameter is no fp32, bf16 or fp16 tensor, or
  /// when a tied parameter is shared with an earlier unit (naming both). Collective when options.sync_module_states. A
  /// module whose parameters are all taken gives a unit without parameters, which communicates nothing.
  std::shared_ptr<Unit> fully_shard(const std::shared_ptr<torch::nn::Module>& module, const ShardOptions& options = {});

  const std::vector<std::shared_ptr<Unit>>& units() const { return units_; }
  DeviceMesh& mesh() { return mesh_; }
  /// Elements of all parameters, each tied one counted once, padding not counted.
  std::int64_t parameter_count() const;

  /// false: the following backwards keep their gradients unsharded and communicate none. Set it for all micro-batches
  /// of a step but the last.
  void set_requires_gradient_sync(bool sync);

  /// Scales all gradients so that their norm over all parameters and ranks is at most `max_norm`; returns the norm from
  /// before. Collective: one reduction. A norm that is not finite is returned and nothing scaled. max_norm <= 0 only
  /// measures.
  double clip_grad_norm(double max_norm);

  /// Drops all gradients.
  void zero_grad();

  /// Every parameter in fp32 and its full shape on the CPU, under its names and aliases (tied ones share a tensor).
  /// Collective; on ranks other than 0 the map is empty when `rank_zero_only`. Needs the whole model's memory.
  std::map<std::string, at::Tensor> gather_full_state(bool rank_zero_only = false);
  /// The same for the reduced gradients; parameters of units without one are left out.
  std::map<std::string, at::Tensor> gather_full_gradients(bool rank_zero_only = false);
  /// Copies this rank's slices out of full tensors. Throws c10::Error for a missing name or another shape; names that
  /// no parameter has are ignored. Not collective.
  void load_full_state(const std::map<std::string, at::Tensor>& state);

  MemoryUse memory() const;

 private:
  std::string path_of(const torch::nn::Module& module) const;
  void collect_parameters(const torch::nn::Module& module, const std::string& unit, std::vector<ParameterInfo>& infos,
                          std::vector<at::Tensor>& tensors) const;
  std::map<std::string, at::Tensor> gather_full(bool rank_zero_only, bool gradients);

  std::shared_ptr<torch::nn::Module> root_;
  DeviceMesh& mesh_;
  std::unique_ptr<Schedule> schedule_;
  std::vector<std::shared_ptr<Unit>> units_;
};

}  // namespace fsdp
