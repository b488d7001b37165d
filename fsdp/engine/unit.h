#pragma once
#include <c10/core/Event.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/engine/layout.h"
#include "fsdp/engine/segment.h"
#include "fsdp/memory/storage.h"

namespace fsdp {

/// How one unit is sharded. Every rank must pass the same options.
struct ShardOptions {
  /// The number formats, and how gradients are divided.
  Precision precision = {};
  /// Where parameters, gradients and states live between steps.
  Offload offload = {};
  /// Frees the gathered parameters after forward and gathers them again for backward. This needs the least memory and
  /// makes 1.5x the traffic. Set it to false for the root unit, because backward needs the root's parameters first.
  bool reshard_after_forward = true;
  /// The unit runs last in forward, so backward begins with it, as a model's head. Where reshard_after_forward is
  /// false, it then lies in the memory of the units that come and go, and not in memory of its own: no other unit is
  /// gathered in between but the one before it.
  bool runs_last = false;
  /// False for a unit whose backward reads no parameter, as that of an embedding: backward does not gather it. A
  /// backward that reads one all the same is a c10::Error.
  bool backward_reads_parameters = true;
  /// Each run of the unit in one forward has a backward of its own: the unit reduces its gradients after each, and is
  /// freed in between. So tied embeddings, which run first and last, take no memory during the other units' backward.
  /// The runs' gradients are reduced one by one and then added, so sums are rounded otherwise.
  bool reduce_each_run = false;
  /// Between 1 and the number of ranks that parameters are sharded over, and a divisor of it: after forward each rank
  /// keeps a part of the gathered parameters, so that groups of this many neighbours have all of them. Backward then
  /// gathers within the group, which is fast where a group is a node. This costs 1 / reshard_to_ranks of the gathered
  /// parameters of all units. As an int for reshard_after_forward of PyTorch's FSDP2. 0: backward gathers from all
  /// ranks. Only where reshard_after_forward is true.
  int reshard_to_ranks = 0;
  /// Frees the gathered parameters after backward. With false they stay until the shard changes, so that further
  /// micro-batches of a step gather nothing. With reshard_after_forward = false too, every step gathers once: that is
  /// ZeRO-1, where states are sharded and parameters are whole on every rank.
  bool reshard_after_backward = true;
  /// How many units to gather ahead, in the recorded order, while this unit computes. Each costs the memory of one
  /// gathered unit; 0 turns prefetching off. There are never more gathers in flight than this.
  int prefetch_depth = 1;
  /// The prefetch depth for backward, in the reverse order. Unset: as prefetch_depth.
  std::optional<int> backward_prefetch_depth = std::nullopt;
  /// Takes the least memory, for less overlap. A unit waits for the reduction of the one before until it lays its
  /// gradients, so gradients of one unit exist at one time, not of two. Gradients take memory from the start of
  /// backward to zero_grad() alone; otherwise it is kept from step to step.
  bool tight = false;
  /// Each parameter, and each rank's part, starts at a multiple of so many elements: a multiple of
  /// UnitLayout::kAlignment. A state of an optimizer that has one value for a block of elements needs a multiple of
  /// that block, such as 256 for Moments::kInt8.
  std::int64_t alignment = UnitLayout::kAlignment;
  /// How parameters are kept that need no gradient when the unit is made, such as the matrices of a model that adapters
  /// are added to (Dettmers et al., QLoRA, arXiv 2305.14314): see FrozenFormat. Such a parameter never trains:
  /// requires_grad = true is a c10::Error at the next run(). Blocks are counted from the first element of each
  /// parameter. Not with reshard_to_ranks, because each rank has all codes at little cost already. Null: all are plain.
  std::function<FrozenFormat(const ParameterInfo&)> frozen_format = {};
  /// Copies parameters and buffers from rank 0 during fully_shard(). With false, each rank must have built equal ones.
  bool sync_module_states = false;
};

struct RecordedRun;
class Schedule;

/// Parameters gathered and reduced together: one FSDP unit.
///
/// States: kSharded -> kGathering -> kUnsharded -> kSharded.
///   kSharded     this rank holds only its chunk. The parameters' storage has 0 bytes; reading or writing one is
///                a c10::Error that names the unit. See [Note: what users see] in segment.h.
///   kGathering   the all-gather has been started.
///   kUnsharded   the parameters are views of gathered buffers.
/// From forward to backward a kSharded unit may also hold a part for its neighbours; see
/// ShardOptions::reshard_to_ranks. The parameters lie in segments, one for each combination of dtype and trainability;
/// see SegmentKey. A change of requires_grad moves parameters to another segment at the next run() outside of a step:
/// that is when the unit holds no gradient. The move gathers the unit's values and states once, so every rank must
/// change the same parameters. With one rank in fp32 the shard *is* the parameters' storage. The unit is then always
/// kUnsharded and copies nothing.
///
/// [Note: unit lifetime] A unit goes through one iteration like this:
///   1. run() gathers the parameters (unless they were prefetched), calls forward, and frees the parameters.
///   2. A hook on the outputs marks the start of the unit's backward. The hook gathers again and gives the parameters
///      zeroed gradients, which are views of the reduce-scatter's input.
///   3. An autograd node on the inputs marks the end of the unit's backward. Without an input that needs a gradient,
///      the end of the whole backward marks it. The unit then frees the parameters and starts the reduce-scatter.
///   4. The reduce-scatter is finished at the end of the whole backward at the latest.
/// The sharded gradient is the *mean* over ranks, unless Precision::gradient_divide_factor says otherwise. Further
/// backward passes add to it until zero_grad().
///
/// A run whose graph is dropped, a run without grad, and a backward inside of a backward (recompute that calls run()
/// again) are fine. A forward or backward that throws leaves nothing gathered; see ShardedModel::abandon_step().
///
/// Gradients of backward passes without synchronisation stay unsharded, in reduce_dtype. The first backward with
/// synchronisation reduces them once, even in units that it does not reach. A step() before that is an error.
///
/// Not thread-safe. All ranks must make the same calls in the same order, or the collectives hang.
class Unit : public std::enable_shared_from_this<Unit> {
 public:
  enum class State { kSharded, kGathering, kUnsharded };

  /// `parameters` correspond to `infos`. The unit takes over their storage. Use fully_shard() instead.
  Unit(std::string name, std::vector<ParameterInfo> infos, std::vector<at::Tensor> parameters,
       std::shared_ptr<Schedule> schedule, const ShardOptions& options);
  ~Unit();
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;

  /// Calls `forward` with the parameters gathered. `input` may have any dtype. `forward` receives an alias or a cast of
  /// `input` (see Precision::cast_inputs) and must not change it in place. Fits a std::function wrapper point of a
  /// model:
  ///   block->wrap = [unit](at::Tensor x, const auto& forward) { return unit->run(x, forward); };
  /// The wrapper may outlive the ShardedModel. Throws c10::Error when an output shares memory with a parameter of the
  /// unit, because the parameters are freed, and when `forward` changes a parameter in place, because the shards would
  /// not have the change. On one rank in fp32 the weights do have it then.
  /// Backward throws c10::Error when the parameters have changed since the run (step, load).
  at::Tensor run(at::Tensor input, const std::function<at::Tensor(at::Tensor)>& forward);
  /// run() for several inputs and outputs. Undefined tensors pass through.
  std::vector<at::Tensor> run_list(std::vector<at::Tensor> inputs,
                                   const std::function<std::vector<at::Tensor>(std::vector<at::Tensor>)>& forward);

  /// Replaces the units that are gathered ahead while this one computes, in place of the recorded order; as
  /// set_modules_to_forward_prefetch() and set_modules_to_backward_prefetch() of PyTorch's FSDP2. The units must live
  /// as long as this one.
  void set_forward_prefetch(std::vector<std::shared_ptr<Unit>> units);
  void set_backward_prefetch(std::vector<std::shared_ptr<Unit>> units);

  /// Starts the all-gather and returns at once. Does nothing unless the unit is kSharded.
  void unshard();
  /// Finishes the all-gather. The unit is kUnsharded afterwards.
  void wait_unsharded();
  /// Frees the gathered parameters. Throws c10::Error when one was changed in place since they were gathered, because
  /// the shard holds the values. With one rank in fp32 the call does nothing.
  void reshard();

  /// "root", or the module's path in the root.
  const std::string& name() const { return name_; }
  /// Sorted by key, trainable ones first. Valid until requires_grad changes.
  const std::vector<std::unique_ptr<Segment>>& segments() const { return segments_; }
  const ShardOptions& options() const { return options_; }
  State state() const { return state_; }

  /// Elements of all parameters, without padding.
  std::int64_t numel() const {
    return sum([](const Segment& segment) { return segment.layout().numel(); });
  }
  /// True if any segment has a reduced gradient.
  bool has_gradient() const;
  /// Frees the gathered copies, which are stale after a change of the shard. The backward of an earlier run is an error
  /// from now on. The parameters have values from now on.
  void shard_changed();
  /// Does the same for a change of these parameters alone (ParameterInfo::index). Others without values stay without.
  void shard_changed(const std::vector<std::size_t>& parameters);
  /// Throws c10::Error while a parameter that was built on the meta device has no values yet. `what` needs them. The
  /// text names the parameter, unless all are without.
  void check_values(const char* what) const;
  /// True if every parameter lies where its requires_grad wants it. False after a change, until the next run() follows
  /// it.
  bool follows_requires_grad() const;
  /// Drops all gradients, sharded and unreduced ones.
  void zero_grad();

  /// Bytes of parameters that this rank keeps between steps, padding included.
  std::int64_t sharded_bytes() const {
    return sum([](const Segment& segment) { return static_cast<std::int64_t>(segment.shard().nbytes()); });
  }
  /// Bytes of the gathered parameters while they exist.
  std::int64_t unsharded_bytes() const { return sum(std::mem_fn(&Segment::unsharded_bytes)); }
  /// Bytes that gathered parameters of this unit occupy now.
  std::int64_t gathered_bytes_now() const { return sum(std::mem_fn(&Segment::gathered_bytes_now)); }
  /// Bytes that unreduced gradients of this unit occupy now.
  std::int64_t gradient_bytes_now() const { return sum(std::mem_fn(&Segment::gradient_bytes_now)); }
  /// The number of all-gathers started. prefetches() counts those that were started ahead.
  std::int64_t gathers() const { return gathers_; }
  std::int64_t prefetches() const { return prefetches_; }

 private:
  friend class Schedule;
  friend class ShardedModel;
  friend struct RecordedRun;

  template <typename OfSegment>
  std::int64_t sum(const OfSegment& of_segment) const {
    std::int64_t all = 0;
    for (const auto& segment : segments_) all += of_segment(*segment);
    return all;
  }
  struct Whole;
  SegmentKey key_of(std::size_t parameter, bool has_master) const;
  void make_segments(const std::vector<Whole>& values);
  std::vector<Whole> gather_values();
  void take_parameters();
  void follow_requires_grad();
  /// Drops the gradients when the user has cleared grad() of all parameters, as module->zero_grad() does. Throws
  /// c10::Error for one that was replaced, or removed alone.
  void follow_gradients();
  /// Throws c10::Error when gradients wait for a reduction, or when gathered parameters were changed in place. `what`
  /// needs whole gradients.
  void check_step(const char* what) const;
  void note_versions(bool resident_only);
  void check_unchanged(bool resident_too) const;
  void free_gathered();
  /// Gathers the unit, unless told otherwise, and starts the gathers of those that come next.
  void gather_with(const std::vector<Unit*>& next, bool itself = true);
  void check_outputs(const std::vector<at::Tensor>& outputs) const;
  void await_runs(const RecordedRun& reached);
  void release();
  bool stays_gathered() const { return !options_.reshard_after_forward && !options_.reshard_after_backward; }
  void leave_gathered(bool backward_will_come);
  void keep_part();
  void drop_part();
  void discard_gathered();
  void abandon();
  void reduce_left_over();
  void end_backward();
  bool has_unreduced() const;
  using Wanted = std::function<std::int64_t(const Segment&)>;
  /// Bytes of a segment's gathered parameters; 0 where the shard is their memory.
  static std::int64_t bytes_of_values(const Segment& segment) {
    return segment.shard_is_parameter() ? 0 : segment.unsharded_bytes();
  }
  /// The size of one buffer for all segments: that of gathered parameters, and that of gradients.
  std::int64_t buffer_bytes(const Wanted& wanted) const;
  std::int64_t gathered_buffer_bytes() const;
  std::int64_t gradient_buffer_bytes() const;
  /// True if values are made of what is gathered: see [Note: quantised segments].
  bool is_staged() const;
  /// The size of a buffer for what is gathered then; 0 for a unit that is not staged.
  std::int64_t staged_buffer_bytes() const;
  /// The part of gathered_buffer_bytes() that is taken while the unit is gathered ahead.
  std::int64_t ahead_buffer_bytes() const { return is_staged() ? 0 : gathered_buffer_bytes(); }
  void wait_gathered();
  void make_values();
  std::vector<c10::DataPtr> take(BufferPool& pool, const Wanted& wanted) const;
  void lay_gradients();
  void start_reduce();
  void add_replicas() { reduce_further(&Segment::add_replicas); }
  void finish_reduce() { reduce_further(&Segment::finish_reduce); }
  /// Runs a part of each segment's reduction, and counts the bytes of gradients that it frees.
  void reduce_further(void (Segment::*part)());
  void enter_run(RecordedRun& run);
  void leave_run(RecordedRun& run);
  void forget_runs();
  void leave_backward();

  std::string name_;
  std::vector<ParameterInfo> infos_;
  std::vector<at::Tensor> parameters_;  // as infos_
  std::shared_ptr<Schedule> schedule_;
  ShardOptions options_;

  std::shared_ptr<BufferPool> gathered_pool_, gradient_pool_;
  std::optional<c10::Event> values_ready_, gather_begun_;  // only on devices with streams

  State state_ = State::kSharded;
  std::vector<std::unique_ptr<Segment>> segments_;
  std::vector<RecordedRun*> recorded_;  // runs whose graph lives
  std::int64_t parameter_version_ = 0;
  std::vector<bool> has_values_;                                            // as infos_
  bool has_part_ = false;                                                   // a gather comes from the neighbours
  std::optional<std::vector<Unit*>> forward_prefetch_, backward_prefetch_;  // set by hand
  int running_ = 0;           // runs that have not returned; more than one when the unit calls itself
  bool in_backward_ = false;  // parameters gathered and gradients laid out for the current backward
  int awaiting_task_ = -1;    // the backward that awaited_ was counted in
  int awaited_ = 0;           // runs that the current backward has yet to end
  bool ends_unseen_ = false;  // the current backward reaches a run without a last node
  std::int64_t gathers_ = 0;
  std::int64_t prefetches_ = 0;
};

}  // namespace fsdp
