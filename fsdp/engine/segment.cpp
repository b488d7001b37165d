#include "fsdp/engine/segment.h"

#include <algorithm>

#include "fsdp/comm/buffer_pool.h"
#include "fsdp/engine/gradient_place.h"

namespace fsdp {
namespace {

/// Tensors of inference mode have no versions.
std::int64_t version_of(const at::Tensor& parameter) {
  return parameter.is_inference() ? 0 : parameter._version();
}

/// Gives new memory to `flat`, which has none or is undefined. Optimizers keep slices of a gradient shard. So the
/// tensor stays while its memory comes and goes, as tight units do it.
void renew(at::Tensor& flat, std::int64_t numel, const at::TensorOptions& options) {
  const at::Tensor fresh = at::empty({numel}, options);
  if (flat.defined()) {
    fill_storage(flat, fresh.storage().set_data_ptr({nullptr, fresh.device()}), storage_bytes(fresh));
  } else {
    flat = fresh;
  }
}

}  // namespace

// [Note: storage] Parameters and the tensors that autograd saved of them (w, w.t()) share one StorageImpl with
// gathered_. Freeing and refilling that StorageImpl in place does not change their versions, so autograd accepts the
// refilled bytes. The views of gathered_ and gradients_ are made once, as only the memory below them changes.

Segment::Segment(SegmentKey key, UnitLayout layout, std::vector<at::Tensor> parameters, SegmentRanks ranks,
                 std::string whose)
    : key_(key),
      layout_(std::move(layout)),
      parameters_(std::move(parameters)),
      ranks_(ranks),
      whose_(std::move(whose)),
      divide_(divide_factors(key.reduce_dtype,
                             ranks.gather->world_size() * (ranks.replicas ? ranks.replicas->world_size() : 1),
                             key.gradient_divide_factor)),
      shown_(parameters_.size()),
      used_here_(parameters_.size()),
      used_anywhere_(parameters_.size()) {
  const auto on_device = at::TensorOptions().device(ranks_.gather->device());
  if (key_.format != FrozenFormat::kPlain) packing_.emplace(key_.format, layout_.chunk());
  shard_ = is_quantised() ? at::zeros({packing_->bytes()}, at_home(at::kByte))
                          : at::zeros({layout_.chunk()}, at_home(key_.has_master ? at::kFloat : key_.param_dtype));
  gathered_ = shard_is_parameter() ? shard_ : without_memory(layout_.padded_numel(), on_device.dtype(key_.param_dtype));
  if (!key_.trainable) return;
  gradients_ = without_memory(layout_.padded_numel(), on_device.dtype(key_.reduce_dtype));
  std::int64_t end = 0;
  const auto add_gap = [&](std::int64_t next) {
    if (next > end) gaps_.push_back(gradients_.narrow(0, end, next - end));
  };
  for (const ParameterInfo& info : layout_.parameters()) {
    add_gap(info.offset);
    end = info.offset + info.numel;
    // A TensorImpl with a version of its own, which tells whether autograd has added to it.
    views_.push_back(info.in(gradients_).variable_data());
  }
  add_gap(layout_.padded_numel());
  free_storage(gradients_);
}

void Segment::name_closed_storages() const {
  if (!shard_is_parameter())
    name_storage(gathered_,
                 "unit " + whose_ +
                     ": a parameter, or a view of one, was used outside of the unit's run(), while this rank "
                     "holds a shard alone; use parameters inside of run(), read them whole by "
                     "ShardedModel::gather_full_state(), set them by load_full_state(), and choose dtypes by "
                     "ShardOptions::precision");
  if (key_.trainable)
    name_storage(gradients_, "unit " + whose_ +
                                 ": a parameter's gradient was used after it was reduced, and this rank holds a shard "
                                 "of it alone; update by an fsdp::Optimizer (torch::optim has no shards), clip by "
                                 "fsdp::gradient_norm(), drop gradients by ShardedModel::zero_grad(), and read them "
                                 "whole by gather_full_gradients()");
}

void Segment::check_owned() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    TORCH_CHECK(share_storage(parameters_[i], gathered_), "unit ", whose_, ": parameter ", layout_.parameters()[i].name,
                " has other memory than the engine gave it, such as after module->to() or set_data(), and would not "
                "train; choose dtypes by ShardOptions::precision, and set values by ShardedModel::load_full_state()");
}

void Segment::note_versions() {
  noted_.resize(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) noted_[i] = version_of(parameters_[i]);
}

void Segment::check_unchanged() const {
  for (std::size_t i = 0; i < noted_.size(); ++i)
    TORCH_CHECK(version_of(parameters_[i]) == noted_[i], "unit ", whose_, ": parameter ", layout_.parameters()[i].name,
                " was changed in place while the unit computed (in run(), in backward, or between the two), and the "
                "shards of the ranks would not have the change; compute with a changed copy, or set values between "
                "steps by ShardedModel::load_full_state()");
}

bool Segment::shows(std::size_t parameter) const {
  return shown_[parameter] == Shows::kGradient && parameters_[parameter].grad().is_same(views_[parameter]);
}

void Segment::hide_gradients() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].mutable_grad() = at::Tensor();
    if (shown_[i] == Shows::kGradient) shown_[i] = Shows::kHidden;
  }
}

void Segment::show_gradients() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (shown_[i] != Shows::kHidden) continue;
    parameters_[i].mutable_grad() = views_[i];
    shown_[i] = Shows::kGradient;
  }
}

void Segment::find_shown(Shown& shown) const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (shown_[i] != Shows::kGradient) continue;
    const ParameterInfo& parameter = layout_.parameters()[i];
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (!gradient.defined()) {
      shown.gone = &parameter;
      continue;
    }
    shown.kept = &parameter;
    if (gradient.is_same(views_[i])) continue;
    // module->zero_grad(false) and detach_() leave another tensor of the same memory.
    TORCH_CHECK(share_storage(gradient, views_[i]) && gradient.sizes() == views_[i].sizes() &&
                    gradient.storage_offset() == views_[i].storage_offset(),
                "unit ", whose_, ": the gradient of ", parameter.name,
                " was replaced after backward, where the engine would not see it; change it in a hook of the parameter "
                "during backward, or divide all gradients by grad_scale of Optimizer::step()");
    gradient = views_[i];
  }
}

at::TensorOptions Segment::at_home(at::ScalarType dtype) const {
  const at::Device device = ranks_.gather->device();
  const bool pins = key_.offload.to_cpu && key_.offload.pin_memory && device.is_cuda();
  return at::TensorOptions().dtype(dtype).device(key_.offload.home(device)).pinned_memory(pins);
}

bool Segment::shard_is_parameter() const {
  return layout_.world_size() == 1 && !key_.offload.to_cpu && shard_.scalar_type() == key_.param_dtype;
}

bool Segment::gradient_shard_is_buffer() const {
  return layout_.world_size() == 1 && ranks_.replicas == nullptr && key_.reduce_dtype == at::kFloat &&
         divide_.after == 1 && !key_.offload.to_cpu;
}

at::Tensor& Segment::state(const std::string& name, const StateForm& form) {
  TORCH_CHECK(key_.has_master, "state ", name, " of unit ", whose_, ": the segment is frozen and has no states");
  TORCH_CHECK(layout_.alignment() % form.block == 0, "state ", name, " of unit ", whose_, " has one value for ",
              form.block, " elements, and parts of the unit start at multiples of ", layout_.alignment(),
              "; set ShardOptions::alignment = ", form.block);
  at::Tensor& state = states_[name];
  if (state.defined()) return state;
  forms_[name] = form;
  return state = at::zeros({layout_.state_numel(form)}, shard_.options().dtype(form.dtype));
}

void Segment::store(std::size_t parameter, const at::Tensor& whole) const {
  const Slice slice = layout_.own(layout_.parameters()[parameter]);
  if (slice.length > 0) write(slice.shard_offset, whole.detach().reshape({-1}).narrow(0, slice.begin, slice.length));
}

void Segment::write(std::int64_t begin, const at::Tensor& values) const {
  if (is_quantised()) return packing_->quantise(values, shard_, begin);
  shard_.narrow(0, begin, values.numel()).copy_(values);
}

at::Tensor Segment::values() const {
  if (!is_quantised()) return shard_;
  at::Tensor values = at::empty({layout_.chunk()}, shard_.options().dtype(key_.param_dtype));
  packing_->dequantise(shard_, values);
  return values;
}

void Segment::store_state(const std::string& name, std::size_t parameter, const at::Tensor& whole) const {
  const Slice slice = layout_.own_state(form(name), layout_.parameters()[parameter]);
  if (slice.length > 0) slice.in(states_.at(name)).copy_(whole.narrow(0, slice.begin, slice.length));
}

at::Tensor Segment::spread_state(const std::string& name) const {
  const StateForm& form = this->form(name);
  const at::Tensor& state = states_.at(name);
  if (!form.has) return state;
  at::Tensor spread = at::zeros({layout_.chunk() / form.block}, state.options());
  for (const ParameterInfo& parameter : layout_.parameters()) {
    const Slice slice = layout_.own_state(form, parameter);
    if (slice.length > 0)
      spread.narrow(0, layout_.own(parameter).shard_offset / form.block, slice.length).copy_(slice.in(state));
  }
  return spread;
}

void Segment::take_over_parameters() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    parameters_[i].mutable_grad() = at::Tensor();
    // The module's members and its dictionary hold this very TensorImpl. So the TensorImpl stays, and only its storage
    // is replaced.
    const at::Tensor view = layout_.parameters()[i].in(gathered_).variable_data();
    if (parameters_[i].is_meta()) {
      parameters_[i].unsafeGetTensorImpl()->shallow_copy_from(view.getIntrusivePtr());  // set_data() refuses meta
    } else {
      parameters_[i].set_data(view);
    }
  }
  name_closed_storages();
  if (!shard_is_parameter()) free_storage(gathered_);
  for (std::size_t i = 0; i < views_.size(); ++i) {
    places_.push_back(std::make_shared<GradientPlace>(GradientPlace{views_[i]}));
    if (!bring_gradients(parameters_[i], places_[i])) places_[i].reset();
  }
}

void Segment::unshard(c10::DataPtr memory) {
  if (shard_is_parameter()) return;
  fill_storage(gathered_, std::move(memory), unsharded_bytes());
  if (part_.defined()) {
    own_part().copy_(part_);
    gathering_ = ranks_.post_forward->all_gather_into(gathered_, whose_);
    return;
  }
  gathered_.narrow(0, ranks_.gather->rank() * layout_.chunk(), layout_.chunk())
      .copy_(shard_.to(gathered_.device(), /*non_blocking=*/true));
  gathering_ = ranks_.gather->all_gather_into(gathered_, whose_);
}

std::int64_t Segment::staged_bytes() const {
  if (shard_is_parameter()) return 0;
  if (!is_quantised()) return unsharded_bytes();
  const bool is_here = layout_.world_size() == 1 && shard_.device() == gathered_.device();
  return is_here ? 0 : packing_->bytes() * layout_.world_size();
}

void Segment::stage(c10::DataPtr memory) {
  const std::int64_t bytes = staged_bytes();
  if (bytes == 0) return;
  const auto options = gathered_.options().dtype(is_quantised() ? at::kByte : key_.param_dtype);
  staged_ = without_memory(bytes / static_cast<std::int64_t>(options.dtype().itemsize()), options);
  fill_storage(staged_, std::move(memory), bytes);
  const std::int64_t part = staged_.numel() / layout_.world_size();
  staged_.narrow(0, ranks_.gather->rank() * part, part).copy_(shard_.to(staged_.device(), /*non_blocking=*/true));
  gathering_ = ranks_.gather->all_gather_into(staged_, whose_);
}

void Segment::make_values(c10::DataPtr memory) {
  if (shard_is_parameter()) return;
  fill_storage(gathered_, std::move(memory), unsharded_bytes());
  if (is_quantised()) {
    const at::Tensor& packed = staged_.defined() ? staged_ : shard_;
    const std::int64_t bytes = packing_->bytes(), chunk = layout_.chunk();
    for (int rank = 0; rank < layout_.world_size(); ++rank)
      packing_->dequantise(packed.narrow(0, rank * bytes, bytes), gathered_.narrow(0, rank * chunk, chunk));
  } else {
    gathered_.copy_(staged_);
  }
  staged_ = at::Tensor();
}

void Segment::wait_gathered() {
  if (!gathering_) return;
  const std::unique_ptr<Pending> gathering = std::move(gathering_);
  gathering->wait();
}

std::int64_t Segment::part_bytes() const {
  return ranks_.post_forward == nullptr ? 0 : unsharded_bytes() / ranks_.post_forward->world_size();
}

/// The neighbours are ranks in a row, and their number divides that of all ranks. So their parts are whole chunks.
at::Tensor Segment::own_part() const {
  const std::int64_t numel = layout_.padded_numel() / ranks_.post_forward->world_size();
  return gathered_.narrow(0, ranks_.post_forward->rank() * numel, numel);
}

void Segment::keep_part(c10::DataPtr memory) {
  part_ = without_memory(own_part().numel(), gathered_.options());
  fill_storage(part_, std::move(memory), part_bytes());
  part_.copy_(own_part());
}

/// Lets the parameters' gradients come into the reduction's input, or be added there: see [Note: first gradients].
/// With one rank in fp32 that buffer is the gradient shard itself.
void Segment::lay_gradients(c10::DataPtr memory) {
  const bool is_first = !has_gradients_;
  if (is_first) {
    fill_storage(gradients_, std::move(memory), gradient_bytes());
    for (const at::Tensor& gap : gaps_) gap.zero_();
    has_gradients_ = true;
  }
  is_unreduced_ = true;
  laid_.assign(parameters_.size(), -1);
  for (std::size_t i = 0; i < parameters_.size(); ++i) lay_gradient(i, is_first);
}

void Segment::lay_gradient(std::size_t parameter, bool is_first) {
  const bool wanted = parameters_[parameter].requires_grad(), is_fresh = is_first && wanted && places_[parameter];
  if (is_first && !is_fresh) views_[parameter].zero_();
  if (!wanted) return;
  laid_[parameter] = views_[parameter]._version();
  parameters_[parameter].mutable_grad() = is_fresh ? at::Tensor() : views_[parameter];
  if (is_fresh) {
    places_[parameter]->is_fresh = true;
    places_[parameter]->is_filled = false;
  }
}

/// Notes which parameters have got a gradient, and copies gradients into the buffer that are not there. Autograd
/// replaces a parameter's gradient by a sum of its own in a backward with create_graph, and a hook may replace it too.
void Segment::fold_gradients() {
  for (std::size_t i = 0; i < laid_.size(); ++i) {
    if (laid_[i] < 0) continue;
    shown_[i] = Shows::kGradient;
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (places_[i] && places_[i]->is_fresh && !places_[i]->is_filled && !gradient.defined()) {
      views_[i].zero_();
      gradient = views_[i];
      continue;
    }
    if (gradient.is_same(views_[i])) {
      used_here_[i] |= views_[i]._version() != laid_[i];
      continue;
    }
    TORCH_CHECK(gradient.defined() && gradient.sizes() == views_[i].sizes(), "unit ", whose_, ": the gradient of ",
                layout_.parameters()[i].name, gradient.defined() ? " got another shape" : " was removed",
                " during backward, by a hook; scale or add to the gradient in place instead");
    if (!gradient.is_alias_of(views_[i])) views_[i].copy_(gradient.detach());
    gradient = views_[i];
    used_here_[i] = 1;
  }
  close_places();
}

void Segment::close_places() {
  for (const auto& place : places_)
    if (place) place->is_fresh = false;
}

void Segment::start_reduce(BufferPool& scratch) {
  is_unreduced_ = false;
  if (gradient_shard_is_buffer()) {
    gradient_shard_ = gradients_;
    return;
  }
  hide_gradients();
  laid_.clear();
  if (storage_bytes(gradient_shard_memory_) == 0) renew(gradient_shard_memory_, layout_.chunk(), at_home(at::kFloat));
  if (layout_.world_size() == 1) {
    reduced_ = gradients_;
  } else if (!gradient_shard_.defined() && key_.reduce_dtype == at::kFloat && !key_.offload.to_cpu) {
    reduced_ = gradient_shard_memory_;
  } else {
    reduced_ = scratch.tensor(layout_.chunk(), gradients_.options());
  }
  if (divide_.before != 1) gradients_.div_(divide_.before);
  reducing_ = ranks_.reduce->reduce_scatter(gradients_, reduced_, whose_);
}

void Segment::add_replicas() {
  if (!reducing_) return;
  const std::unique_ptr<Pending> reducing = std::move(reducing_);
  reducing->wait();
  if (!reduced_.is_same(gradients_)) free_gradients();
  if (ranks_.replicas != nullptr) adding_replicas_ = ranks_.replicas->start_all_reduce(reduced_, whose_);
}

void Segment::finish_reduce() {
  if (!is_reducing()) return;
  add_replicas();
  if (const std::unique_ptr<Pending> adding = std::move(adding_replicas_)) adding->wait();
  if (gradient_shard_.defined() || key_.offload.to_cpu) {
    // In fp32 this is the memory of the reduction, which is not needed any more.
    const at::Tensor more = reduced_.to(at::kFloat);
    if (divide_.after != 1) more.div_(divide_.after);
    if (gradient_shard_.defined()) {
      gradient_shard_.add_(more.to(gradient_shard_.device()));
    } else {
      gradient_shard_ = gradient_shard_memory_.copy_(more, /*non_blocking=*/true);
    }
  } else {
    gradient_shard_ = gradient_shard_memory_;
    if (!reduced_.is_same(gradient_shard_)) gradient_shard_.copy_(reduced_);
    if (divide_.after != 1) gradient_shard_.div_(divide_.after);
  }
  if (reduced_.is_same(gradients_)) free_gradients();
  reduced_ = at::Tensor();
}

void Segment::free_gradients() {
  has_gradients_ = is_unreduced_ = false;
  close_places();
  if (key_.trainable) free_storage(gradients_);
}

/// After a failure, which may have broken the reduction.
void Segment::discard_reduction() {
  discard(reducing_);
  discard(adding_replicas_);
  reduced_ = at::Tensor();
}

void Segment::drop_gradients(bool with_memory) {
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::Tensor();
  std::fill(shown_.begin(), shown_.end(), Shows::kNothing);
  free_gradients();
  gradient_shard_ = at::Tensor();
  if (with_memory && gradient_shard_memory_.defined()) free_storage(gradient_shard_memory_);
  laid_.clear();
  std::fill(used_here_.begin(), used_here_.end(), std::uint8_t{0});
  std::fill(used_anywhere_.begin(), used_anywhere_.end(), std::uint8_t{0});
}

}  // namespace fsdp
