#pragma once
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fsdp/comm/device_mesh.h"
#include "fsdp/engine/unit.h"

namespace fsdp {

/// Bytes on this rank. "now" and "peak" count what the engine itself allocates: gathered parameters and unreduced
/// gradients, not activations.
struct MemoryUse {
  std::int64_t shard_bytes = 0;            // fp32 masters and frozen values or their codes, padding included
  std::int64_t gradient_shard_bytes = 0;   // reduced gradients
  std::int64_t gradient_memory_bytes = 0;  // for reduced gradients, used or not, outside of the pool
  std::int64_t gathered_bytes_now = 0;
  std::int64_t gathered_bytes_peak = 0;
  std::int64_t unreduced_bytes_now = 0;  // gradients before or during reduction
  std::int64_t unreduced_bytes_peak = 0;
  std::int64_t pool_bytes = 0;  // for gathered parameters, parts and codes of them, and gradients, in use or not
};

/// A parameter of a model, and where it lies.
struct PlacedParameter {
  std::size_t unit;  // place in ShardedModel::units()
  Segment& segment;
  const ParameterInfo& info;
};

/// A module whose parameters are sharded over a mesh. Holds the units in the order they were made, and offers what
/// concerns all of them. The caller keeps the module and its tensors; the units take over the tensors' storage. What
/// the caller then does to the module's parameters and their gradients either works or throws c10::Error, with any
/// number of ranks: see [Note: what users see] in segment.h.
///
///   fsdp::ShardedModel sharded(model, mesh);
///   for (auto& block : model->blocks) block->wrap = wrapper(sharded.fully_shard(block, options));
///   model->wrap = wrapper(sharded.fully_shard(model, root_options));
///
/// Not thread-safe. All ranks must make the same calls in the same order for every method marked collective. The mesh
/// must outlive the model.
class ShardedModel {
 public:
  /// Parameter names are paths in `root`. The constructor shards nothing yet.
  ShardedModel(std::shared_ptr<torch::nn::Module> root, DeviceMesh& mesh);
  ~ShardedModel();
  ShardedModel(const ShardedModel&) = delete;
  ShardedModel& operator=(const ShardedModel&) = delete;

  /// Makes one unit from `module`'s parameters, and keeps this rank's shard of them alone. Parameters may lie on the
  /// meta device (see initialize.h); they get values later. Parameters of earlier units are left out, so shard
  /// children before their parents. `module` must be the root or lie in it. So must the modules of `with`, whose
  /// parameters join the unit, because its run() uses them, too, as with a list of modules in PyTorch's FSDP2. A module
  /// without remaining parameters gives an empty unit, which communicates nothing. Collective when
  /// options.sync_module_states, and when the unit is the first with this options.reshard_to_ranks. Throws c10::Error
  /// when `module` is outside of the root, when a parameter is not fp32, bf16 or fp16, when `options.offload` is not
  /// that of earlier units, when a tied parameter already belongs to an earlier unit (the text names both), when a
  /// buffer is on the meta device, or for groups that DeviceMesh::shard_group() refuses.
  std::shared_ptr<Unit> fully_shard(const std::shared_ptr<torch::nn::Module>& module, const ShardOptions& options = {},
                                    const std::vector<std::shared_ptr<torch::nn::Module>>& with = {});

  const std::vector<std::shared_ptr<Unit>>& units() const { return units_; }
  /// In the order of units and segments. Valid until requires_grad changes.
  std::vector<PlacedParameter> parameters() const;
  DeviceMesh& mesh() { return mesh_; }
  /// Elements of all parameters. A tied parameter counts once; padding does not count.
  std::int64_t parameter_count() const;

  /// With false, later backward passes keep their gradients unsharded and communicate none. Set it to false for all
  /// micro-batches of a step but the last.
  void set_requires_gradient_sync(bool sync);

  /// Drops all gradients. module->zero_grad() does the same at the next backward or step.
  void zero_grad();

  /// Gives up the current step after a forward or backward that threw: parameters that are still gathered, collectives
  /// under way, and all gradients. The weights stay, and the next step begins anew. Not collective, but every rank must
  /// give up the same step. A forward that throws has already freed what it gathered. A backward that throws has also
  /// dropped the gradients; until abandon_step() or zero_grad() the next backward, gradient_norm() and step() throw.
  void abandon_step();
  /// Waits until Segment::used() is known. An optimizer calls it first. Throws c10::Error when a backward of this step
  /// threw, when gradients wait for a reduction (set_requires_gradient_sync), and when a parameter's grad() was
  /// replaced after backward. `what` names the caller.
  void complete_gradients(const char* what) const;

  /// Where shards, reduced gradients and the optimizer's states live: the mesh's device, or the CPU with
  /// Offload::to_cpu.
  at::Device home() const;
  /// Waits until no copy between home() and the mesh's device is under way. Whoever reads or writes shards on the host
  /// calls it first. Does nothing without an offload.
  void await_copies() const;

  /// Every parameter in fp32, with its full shape, on the CPU. The map has an entry for each name and each alias; tied
  /// names share one tensor. Needs memory for the whole model. Collective. With `rank_zero_only` the map is empty on
  /// the other ranks.
  std::map<std::string, at::Tensor> gather_full_state(bool rank_zero_only = false);
  /// The reduced gradients, in the same form. Parameters that took part in no backward are left out.
  std::map<std::string, at::Tensor> gather_full_gradients(bool rank_zero_only = false);
  /// Gives the parameters values, part by part. Calls `fill` for parts of each parameter of which this rank owns some:
  /// `values` is fp32 on the CPU, [n] with n <= kMostFilled, and stands for elements [begin, begin + n) of the
  /// flattened parameter. Memory beside the shard is one part. After a throw the values are unknown. Not collective.
  /// Parameters for which `only` is false keep their values, or stay without. Null: all parameters get values. `only`
  /// must answer alike on every rank. See initialize() and load_tensors().
  using Fill = std::function<void(const ParameterInfo& parameter, std::int64_t begin, const at::Tensor& values)>;
  void fill(const Fill& fill, const std::function<bool(const ParameterInfo& parameter)>& only = {});
  static constexpr std::int64_t kMostFilled = std::int64_t{1} << 22;

  /// Copies this rank's slices out of full tensors. Throws c10::Error for a missing name or a different shape. Names
  /// that the model does not have are ignored. Not collective.
  void load_full_state(const std::map<std::string, at::Tensor>& state);

  MemoryUse memory() const;

  /// With true, the memory of pools keeps its addresses, because a graph of the device's work knows them; see
  /// StepGraph.
  void keep_pool_memory(bool keeps);
  /// Work that the engine has not made, such as a graph's, has changed the shards and used the pools. All later work of
  /// the engine waits for the place that the current stream has reached. Gathered parameters are freed, and the
  /// backward of an earlier run is an error from now on. Between steps only.
  void changed_by_current_stream();

 private:
  std::string path_of(const torch::nn::Module& module) const;
  /// The beginning of the names of the module's parameters.
  std::string prefix_of(const torch::nn::Module& module) const;
  void collect_parameters(const torch::nn::Module& module, const std::string& unit, std::vector<ParameterInfo>& infos,
                          std::vector<at::Tensor>& tensors) const;
  void check_buffers(const torch::nn::Module& module, const std::string& unit) const;
  void cast_buffers(const torch::nn::Module& module, const std::string& unit,
                    std::optional<at::ScalarType> dtype) const;
  std::map<std::string, at::Tensor> gather_full(bool rank_zero_only, bool gradients);
  std::set<BufferPool*> pools() const;

  std::shared_ptr<torch::nn::Module> root_;
  DeviceMesh& mesh_;
  std::shared_ptr<Schedule> schedule_;
  std::vector<std::shared_ptr<Unit>> units_;
  std::vector<std::vector<std::string>> prefixes_;  // by unit: how the names of its modules' parameters begin
};

}  // namespace fsdp
