#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/communicator.h"
#include "fsdp/layout.h"

namespace fsdp {

/// How one unit is sharded. Every rank must pass the same.
struct ShardOptions {
  /// What forward and backward compute in and what the all-gather carries: kFloat or kBFloat16. The shard stays the
  /// fp32 master either way.
  at::ScalarType param_dtype = at::kFloat;
  /// What gradients are accumulated and reduced in: kFloat or kBFloat16. The sharded gradient is fp32 either way.
  at::ScalarType reduce_dtype = at::kFloat;
  /// Frees the gathered parameters between forward and backward, and gathers them again: the least memory for 1.5x the
  /// traffic. Set it to false for the root unit, whose parameters are needed again at once.
  bool reshard_after_forward = true;
  /// How many units ahead, in the recorded order, to gather while this one computes. Each costs the memory of one
  /// gathered unit; 0 turns prefetching off.
  int prefetch_depth = 1;
  /// Takes parameters and buffers from rank 0 at fully_shard() time; otherwise each rank must have built equal ones.
  bool sync_module_states = false;
  /// Casts floating-point inputs of run() to param_dtype.
  bool cast_inputs = true;
};

class Schedule;

/// Parameters gathered and reduced together: one FSDP unit.
///
/// States: kSharded -> kGathering -> kUnsharded -> kSharded.
///   kSharded     this rank holds its chunk only; the parameters' storage has 0 bytes; reading them crashes, as
///                in PyTorch.
///   kGathering   the all-gather is under way.
///   kUnsharded   the parameters are views of the gathered buffer.
/// With one rank in fp32 the shard *is* the parameters' storage: the unit is always kUnsharded and nothing is ever
/// copied.
///
/// [Note: unit lifetime] run() gathers (or finds it prefetched), calls forward, frees. Backward enters through a hook
/// on the outputs: gathers again and lays zeroed gradients, views of the reduce-scatter's input, under the parameters.
/// It leaves through an autograd node on the inputs, or at the end of backward when no input needs a gradient: frees
/// the parameters and starts the reduce-scatter, which is finished at the latest at the end of backward. The sharded
/// gradient is the *mean* over ranks; further backwards add to it until zero_grad().
///
/// Gradients of several backwards without synchronisation stay unsharded in reduce_dtype and are reduced once, by the
/// first backward with synchronisation, whether that reaches the unit or not.
///
/// Not thread-safe. All ranks must make the same calls in the same order, or the collectives hang.
class Unit : public std::enable_shared_from_this<Unit> {
 public:
  enum class State { kSharded, kGathering, kUnsharded };

  /// `parameters` correspond to layout.parameters(); their storage is taken over. Use fully_shard() instead.
  Unit(std::string name, UnitLayout layout, std::vector<at::Tensor> parameters, Schedule& schedule,
       const ShardOptions& options);
  ~Unit();
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  /// Calls `forward` with the parameters gathered. `input` may be of any dtype; what reaches `forward` is an alias of
  /// it (or a cast, see cast_inputs) and must not be changed in place. Fits a std::function wrapper point of a model:
  ///   block->wrap = [unit](at::Tensor x, const auto& forward) { return unit->run(x, forward); };
  at::Tensor run(at::Tensor input, const std::function<at::Tensor(at::Tensor)>& forward);
  /// The same for several inputs and outputs; undefined tensors pass through.
  std::vector<at::Tensor> run_list(std::vector<at::Tensor> inputs,
                                   const std::function<std::vector<at::Tensor>(std::vector<at::Tensor>)>& forward);

  /// Starts the all-gather and returns at once. No-op unless kSharded.
  void unshard();
  /// Finishes the all-gather: kUnsharded afterwards.
  void wait_unsharded();
  /// Frees the gathered parameters. The shard is the truth: changes made to gathered parameters are lost (except with
  /// one rank in fp32, where it does nothing).
  void reshard();

  /// "root" or the module's path in the root.
  const std::string& name() const { return name_; }
  const UnitLayout& layout() const { return layout_; }
  const ShardOptions& options() const { return options_; }
  State state() const { return state_; }

  /// This rank's fp32 master, [layout().chunk()]. Whoever writes to it calls shard_changed() afterwards.
  const at::Tensor& shard() const { return shard_; }
  /// Gathered copies are stale now: frees them.
  void shard_changed();
  /// This rank's mean gradient in fp32, [layout().chunk()]; undefined when no backward has come here since zero_grad().
  const at::Tensor& gradient_shard() const { return gradient_shard_; }
  /// Drops all gradients, sharded and not yet reduced ones. Needed before the next backward when one threw.
  void zero_grad();

  /// Bytes this rank keeps between steps for parameters, padding included.
  std::int64_t sharded_bytes() const;
  /// Bytes of the gathered parameters while they exist.
  std::int64_t unsharded_bytes() const;
  /// Bytes that gathered parameters of this unit occupy now.
  std::int64_t gathered_bytes_now() const;
  /// Bytes that unreduced gradients of this unit occupy now.
  std::int64_t gradient_bytes_now() const;
  /// All-gathers started, and those of them started ahead of need.
  std::int64_t gathers() const { return gathers_; }
  std::int64_t prefetches() const { return prefetches_; }

 private:
  friend class Schedule;
  friend class ShardedModel;
  struct LeaveBackward;

  bool shard_is_parameter() const;
  bool gradient_shard_is_buffer() const;
  void take_over_parameters();
  void gather_with(const std::vector<Unit*>& next);
  std::vector<at::Tensor> link_inputs(std::vector<at::Tensor> inputs);
  void leave_forward(const std::vector<at::Tensor>& outputs);
  void enter_backward();
  void leave_backward();
  void reduce_left_over();
  void end_backward();
  void lay_gradients();
  void start_reduce();
  void finish_reduce();
  void free_gradients();

  std::string name_;
  UnitLayout layout_;
  std::vector<at::Tensor> parameters_;
  Schedule& schedule_;
  ShardOptions options_;

  State state_ = State::kSharded;
  at::Tensor shard_;
  at::Tensor gathered_;  // [padded_numel] in param_dtype; its storage holds 0 bytes while kSharded
  std::unique_ptr<Pending> gathering_;
  at::Tensor gradients_;  // [padded_numel] in reduce_dtype, undefined while there are none
  at::Tensor reduced_;    // [chunk] in reduce_dtype, while a reduce-scatter is under way
  std::unique_ptr<Pending> reducing_;
  at::Tensor gradient_shard_;
  int open_runs_ = 0;         // runs whose LeaveBackward has not fired yet, or that have none
  bool in_backward_ = false;  // gathered and laid out for the backward in progress
  std::int64_t gathers_ = 0;
  std::int64_t prefetches_ = 0;
};

}  // namespace fsdp
