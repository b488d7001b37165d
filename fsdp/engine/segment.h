#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/comm/communicator.h"
#include "fsdp/engine/layout.h"
#include "fsdp/engine/packing.h"
#include "fsdp/memory/storage.h"

namespace fsdp {

class BufferPool;
struct GradientPlace;

/// Properties that the parameters of one segment have in common.
struct SegmentKey {
  /// The parameters need a gradient now.
  bool trainable = true;
  /// The parameters are trainable, or were so earlier. Such a shard is fp32 and has the optimizer's states. Others have
  /// no states, and their shard is of param_dtype.
  bool has_master = true;
  /// How a segment without a master is kept. With a master: kPlain.
  FrozenFormat format = FrozenFormat::kPlain;
  /// The dtype of forward, backward and the all-gather: kFloat, kBFloat16 or kHalf.
  at::ScalarType param_dtype = at::kFloat;
  /// In which gradients are accumulated and reduced: kFloat, kBFloat16 or kHalf.
  at::ScalarType reduce_dtype = at::kFloat;
  /// See Precision.
  std::optional<double> gradient_divide_factor = std::nullopt;
  Offload offload = {};
  auto operator<=>(const SegmentKey&) const = default;
};

/// The ranks that a segment communicates with.
struct SegmentRanks {
  /// That parameters are sharded over.
  Communicator* gather = nullptr;
  /// The ranks of `gather`, for reductions. The communicator may be the same, too.
  Communicator* reduce = nullptr;
  /// With the same shard; null: there are no others.
  Communicator* replicas = nullptr;
  /// Neighbours that share the parameters from forward to backward; null: parameters are gathered from all.
  Communicator* post_forward = nullptr;
};

/// The parameters of a unit with equal keys, in a flat layout of their own. Each segment has its own shard. Only
/// trainable segments have gradients.
///
/// The owning unit says when a segment gathers, lays and reduces. All tensors of size [chunk] have one layout, so
/// layout().own(info) is the place of a parameter's slice in shard, gradient shard and states alike.
///
/// [Note: what users see] Between gathers a parameter has no memory, and between backward and step its gradient has
/// none: both are closed (see fsdp/memory/storage.h), so whoever reads or writes them is told the unit and the remedy.
/// The parameter's grad() stays defined until the gradient is dropped. So the engine sees what a user does to it:
/// cleared gradients of a whole unit, as by module->zero_grad(), are dropped; a gradient that was replaced or removed
/// is an error. Parameters have versions, so a change in place that the shard would not have is an error, too. With one
/// rank parameters and gradients may have memory all the time (shard_is_parameter(), gradient_shard_is_buffer()). Then
/// torch::optim works on them as on any module, and the same changes are errors.
///
/// [Note: quantised segments] Of parameters that never train a rank may keep codes and scales: see FrozenFormat. An
/// all-gather brings those of all ranks into staged memory, and values are made of them when the unit is used. Only
/// then the unit takes memory for values, and it gives the staged memory back at once. So a unit that is gathered ahead
/// takes its codes and scales alone. The unit's other segments are staged with it, and copied. Values are made of the
/// same codes each time, so they are the same bits in forward, in backward and at any number of ranks. A quantised
/// segment stays as it is when requires_grad of others changes; its own parameters cannot train.
class Segment {
 public:
  /// `parameters` correspond to layout.parameters(). `whose` names the unit. Use fully_shard() instead.
  Segment(SegmentKey key, UnitLayout layout, std::vector<at::Tensor> parameters, SegmentRanks ranks, std::string whose);

  const SegmentKey& key() const { return key_; }
  const UnitLayout& layout() const { return layout_; }

  /// The memory of this rank, on the device of Offload::home(): its values, [chunk], or those of a quantised segment as
  /// bytes, laid out as Packing says. Call Unit::shard_changed() after writing to it.
  const at::Tensor& shard() const { return shard_; }
  /// True if SegmentKey::format is not kPlain: see [Note: quantised segments].
  bool is_quantised() const { return packing_.has_value(); }
  /// The dtype of values(): that of shard(), but of a quantised segment param_dtype.
  at::ScalarType value_dtype() const { return is_quantised() ? key_.param_dtype : shard_.scalar_type(); }
  /// This rank's values, [chunk]: shard(), or a copy that a quantised segment makes.
  at::Tensor values() const;
  /// Copies values of any dtype and device to elements of this rank's chunk from `begin` on. In a quantised segment
  /// `begin` is a multiple of a block, and so is their number, unless a parameter ends there.
  void write(std::int64_t begin, const at::Tensor& values) const;
  /// This rank's part of the divided sum of all ranks' gradients in fp32, [chunk]. Undefined when no backward has
  /// reached the unit since zero_grad().
  const at::Tensor& gradient_shard() const { return gradient_shard_; }
  /// For each parameter, in the order of layout(): not 0 when a backward of any rank gave the parameter a gradient
  /// since zero_grad(). Known after ShardedModel::complete_gradients().
  const std::vector<std::uint8_t>& used() const { return used_anywhere_; }
  bool used(std::size_t parameter) const { return used_anywhere_[parameter] != 0; }
  /// A flat tensor beside the shard, [layout().state_numel(form)], such as a moment of an optimizer. Zeros at the first
  /// call, which gives it its form. It moves with the shard when requires_grad changes. Only for segments with a
  /// master. Throws c10::Error for blocks that do not fit the layout.
  at::Tensor& state(const std::string& name, const StateForm& form = {});
  const std::map<std::string, at::Tensor>& states() const { return states_; }
  const StateForm& form(const std::string& state) const { return forms_.at(state); }

  /// Copies this rank's slice of a whole parameter into the shard. `parameter` is its place in layout().
  void store(std::size_t parameter, const at::Tensor& whole) const;
  /// Copies this rank's values of a parameter's whole state into the state.
  void store_state(const std::string& name, std::size_t parameter, const at::Tensor& whole) const;
  /// A sharded state as if every parameter had it, which is equally long on all ranks: [chunk / form.block].
  at::Tensor spread_state(const std::string& name) const;

  /// Bytes of the gathered parameters while they exist.
  std::int64_t unsharded_bytes() const { return layout_.padded_numel() * c10::elementSize(key_.param_dtype); }
  std::int64_t gathered_bytes_now() const {
    return storage_bytes(staged_) + (shard_is_parameter() ? 0 : storage_bytes(gathered_));
  }
  /// Bytes of the memory for gradient_shard(), used or not; 0 where that is a part of the pool.
  std::int64_t gradient_memory_bytes() const {
    return gradient_shard_memory_.defined() ? static_cast<std::int64_t>(gradient_shard_memory_.nbytes()) : 0;
  }
  std::int64_t gradient_bytes_now() const { return gradient_shard_is_buffer() ? 0 : storage_bytes(gradients_); }

 private:
  friend class Unit;
  friend class Participation;

  /// With one rank the shard is the parameters' storage, unless it is of another dtype or lives elsewhere.
  bool shard_is_parameter() const;
  /// With one rank in all, an fp32 reduction and neither division nor offload, the buffer of gradients is the gradient
  /// shard.
  bool gradient_shard_is_buffer() const;
  /// Makes the parameters views of the gathered buffer.
  void take_over_parameters();
  /// Sets the text that is said of tensors without memory.
  void name_closed_storages() const;
  /// Throws c10::Error when a parameter is no view of the gathered buffer any more.
  void check_owned() const;
  /// Remembers how often parameters were changed in place.
  void note_versions();
  /// Throws c10::Error when a parameter has been changed in place since note_versions().
  void check_unchanged() const;
  /// Finds parameters whose gradients lie in the engine's memory and whose grad() is still there, and those whose
  /// grad() the user has cleared. Throws c10::Error for a grad() that the user has replaced.
  struct Shown {
    const ParameterInfo* kept = nullptr;  // one whose grad() is still there
    const ParameterInfo* gone = nullptr;  // one whose grad() was cleared
  };
  void find_shown(Shown& shown) const;
  bool shows(std::size_t parameter) const;
  /// While a reduction reads the gradients, parameters have none: a late one would change what is sent. The end of the
  /// backward finds it in their place, and shows the others again.
  void hide_gradients();
  void show_gradients();

  at::TensorOptions at_home(at::ScalarType dtype) const;

  /// `memory` holds unsharded_bytes().
  void unshard(c10::DataPtr memory);
  /// Bytes that are gathered before values are made of them; 0: values are made of the shard itself.
  std::int64_t staged_bytes() const;
  /// Starts the all-gather into `memory`, which holds staged_bytes(), in place of unshard().
  void stage(c10::DataPtr memory);
  void wait_gathered();
  /// Makes the parameters' values of what stage() has gathered, and frees that. `memory` holds unsharded_bytes().
  void make_values(c10::DataPtr memory);
  void reshard() {
    staged_ = at::Tensor();
    if (!shard_is_parameter()) free_storage(gathered_);
  }
  /// Bytes that keep_part() needs.
  std::int64_t part_bytes() const;
  /// Keeps a part of the gathered parameters: this rank's among the neighbours. Until drop_part() unshard() gathers
  /// from the neighbours alone. `memory` holds part_bytes().
  void keep_part(c10::DataPtr memory);
  void drop_part() { part_ = at::Tensor(); }
  at::Tensor own_part() const;  // of gathered_
  std::int64_t gradient_bytes() const { return layout_.padded_numel() * c10::elementSize(key_.reduce_dtype); }
  /// `memory` holds gradient_bytes(), and is looked at only while the segment has no gradients.
  void lay_gradients(c10::DataPtr memory);
  void lay_gradient(std::size_t parameter, bool is_first);
  void fold_gradients();
  void close_places();
  /// A reduction goes through start_reduce(), add_replicas() and finish_reduce(). Each does what is left of those
  /// before.
  void start_reduce(BufferPool& scratch);
  bool is_reducing() const { return reduced_.defined(); }
  /// Finishes the reduce-scatter and starts the sum over the replicas, if there are any.
  void add_replicas();
  void finish_reduce();
  void free_gradients();
  /// `with_memory`: the memory of gradient_shard(), too, goes back to the allocator.
  void drop_gradients(bool with_memory);
  void discard_reduction();

  SegmentKey key_;
  UnitLayout layout_;
  std::vector<at::Tensor> parameters_;
  SegmentRanks ranks_;
  std::string whose_;
  DivideFactors divide_;

  std::optional<Packing> packing_;  // of a chunk
  at::Tensor shard_;
  at::Tensor staged_;  // what all ranks keep, in the order of ranks; from stage() to make_values()
  // [padded_numel] in param_dtype. Its storage has 0 bytes while sharded, and else lies in a slot.
  at::Tensor gathered_;
  std::unique_ptr<Pending> gathering_;
  at::Tensor part_;  // of gathered_, [padded_numel / neighbours]; undefined while unshard() gathers from all
  // [padded_numel] in reduce_dtype. Its storage lies in a slot while has_gradients_.
  at::Tensor gradients_;
  std::vector<at::Tensor> views_;                       // of gradients_, one a parameter
  std::vector<at::Tensor> gaps_;                        // of gradients_, between those and behind them
  std::vector<std::shared_ptr<GradientPlace>> places_;  // one a parameter; null: autograd adds to zeros
  bool has_gradients_ = false;
  bool is_unreduced_ = false;  // a backward has given gradients that no reduction has taken
  enum class Shows : std::uint8_t { kNothing, kGradient, kHidden };
  std::vector<Shows> shown_;         // one a parameter: whether its grad() is its part of gradients_, closed or not
  std::vector<std::int64_t> noted_;  // the parameters' versions; see note_versions()
  // The versions of views_ when the parameters' gradients were laid, or their places; -1 for those that were not.
  std::vector<std::int64_t> laid_;
  at::Tensor reduced_;  // [chunk] in reduce_dtype; defined during a reduction
  std::unique_ptr<Pending> reducing_, adding_replicas_;
  at::Tensor gradient_shard_;
  at::Tensor gradient_shard_memory_;  // of gradient_shard_, kept from step to step
  std::vector<std::uint8_t> used_here_, used_anywhere_;
  std::map<std::string, at::Tensor> states_;
  std::map<std::string, StateForm> forms_;  // of states_
};

}  // namespace fsdp
