#include "fsdp/segment.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace fsdp {
namespace {

std::int64_t storage_bytes(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<std::int64_t>(tensor.storage().nbytes()) : 0;
}

// [Note: storage] Parameters and the tensors that autograd saved of them (w, w.t()) share one StorageImpl with
// gathered_. Freeing and refilling that StorageImpl in place does not change their versions, so autograd accepts the
// refilled bytes.
void free_storage(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  storage.set_data_ptr_noswap(storage.allocator()->allocate(0));
  storage.set_nbytes(0);
}

void refill_storage(const at::Tensor& tensor, std::int64_t bytes) {
  const c10::Storage& storage = tensor.storage();
  storage.set_data_ptr_noswap(storage.allocator()->allocate(static_cast<std::size_t>(bytes)));
  storage.set_nbytes(static_cast<std::size_t>(bytes));
}

}  // namespace

Segment::Segment(SegmentKey key, UnitLayout layout, std::vector<at::Tensor> parameters, Communicator& communicator,
                 std::string whose)
    : key_(key),
      layout_(std::move(layout)),
      parameters_(std::move(parameters)),
      communicator_(communicator),
      whose_(std::move(whose)),
      used_here_(parameters_.size()),
      used_anywhere_(parameters_.size()) {
  const auto on_device = at::TensorOptions().device(communicator.device());
  shard_ = at::zeros({layout_.chunk()}, on_device.dtype(key_.has_master ? at::kFloat : key_.param_dtype));
  gathered_ = shard_is_parameter() ? shard_ : at::empty({layout_.padded_numel()}, on_device.dtype(key_.param_dtype));
}

bool Segment::shard_is_parameter() const {
  return layout_.world_size() == 1 && shard_.scalar_type() == key_.param_dtype;
}

bool Segment::gradient_shard_is_buffer() const {
  return layout_.world_size() == 1 && key_.reduce_dtype == at::kFloat;
}

at::Tensor& Segment::state(const std::string& name) {
  TORCH_CHECK(key_.has_master, "state ", name, " of unit ", whose_, ": the segment is frozen and has no states");
  at::Tensor& state = states_[name];
  if (!state.defined()) state = at::zeros({layout_.chunk()}, shard_.options());
  return state;
}

void Segment::store(const at::Tensor& flat, std::size_t parameter, const at::Tensor& whole) const {
  const Slice slice = layout_.own(layout_.parameters()[parameter]);
  if (slice.length > 0)
    flat.narrow(0, slice.shard_offset, slice.length)
        .copy_(whole.detach().reshape({-1}).narrow(0, slice.begin, slice.length));
}

void Segment::take_over_parameters() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterInfo& info = layout_.parameters()[i];
    parameters_[i].mutable_grad() = at::Tensor();
    // The module's members and its dictionary hold this very TensorImpl. So the TensorImpl stays, and only its storage
    // is replaced.
    parameters_[i].set_data(gathered_.narrow(0, info.offset, info.numel).view(info.shape).variable_data());
  }
  if (!shard_is_parameter()) free_storage(gathered_);
}

void Segment::unshard() {
  if (shard_is_parameter()) return;
  refill_storage(gathered_, unsharded_bytes());
  gathered_.narrow(0, communicator_.rank() * layout_.chunk(), layout_.chunk()).copy_(shard_);
  gathering_ = communicator_.all_gather_into(gathered_, whose_);
}

void Segment::wait_unsharded() {
  if (!gathering_) return;
  const std::unique_ptr<Pending> gathering = std::move(gathering_);
  gathering->wait();
}

void Segment::reshard() {
  if (!shard_is_parameter()) free_storage(gathered_);
}

/// Gives the parameters zeroed gradients, which are views of the reduction's input. Autograd adds to them in place.
/// With one rank in fp32 that buffer is the gradient shard itself.
void Segment::lay_gradients() {
  // The same backward may enter the unit twice. Autograd must not add to a buffer that is being sent.
  finish_reduce();
  if (!gradients_.defined())
    gradients_ =
        at::zeros({layout_.padded_numel()}, at::TensorOptions().device(shard_.device()).dtype(key_.reduce_dtype));
  laid_.resize(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!parameters_[i].requires_grad()) continue;
    const ParameterInfo& info = layout_.parameters()[i];
    // A TensorImpl with a version of its own, which tells whether autograd has added to it.
    laid_[i] = gradients_.narrow(0, info.offset, info.numel).view(info.shape).variable_data();
    parameters_[i].mutable_grad() = laid_[i];
  }
}

/// Notes which parameters have got a gradient, and copies gradients into the buffer that are not there. Autograd
/// replaces a parameter's gradient by a sum of its own in a backward with create_graph, and a hook may replace it too.
void Segment::fold_gradients() {
  for (std::size_t i = 0; i < laid_.size(); ++i) {
    if (!laid_[i].defined()) continue;
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (gradient.is_same(laid_[i])) {
      used_here_[i] |= laid_[i]._version() > 0;
      continue;
    }
    TORCH_CHECK(gradient.defined() && gradient.sizes() == laid_[i].sizes(), "unit ", whose_, ": the gradient of ",
                layout_.parameters()[i].name, gradient.defined() ? " got another shape" : " was removed",
                " during backward, by a hook; scale or add to the gradient in place instead");
    if (!gradient.is_alias_of(laid_[i])) laid_[i].copy_(gradient.detach());
    gradient = laid_[i];
    used_here_[i] = 1;
  }
}

void Segment::start_reduce() {
  if (gradient_shard_is_buffer()) {
    gradient_shard_ = gradients_;
    return;
  }
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::Tensor();
  laid_.clear();
  reduced_ = layout_.world_size() == 1 ? gradients_ : at::empty({layout_.chunk()}, gradients_.options());
  reducing_ = communicator_.reduce_scatter(gradients_, reduced_, whose_);
}

void Segment::finish_reduce() {
  if (!reducing_) return;
  const std::unique_ptr<Pending> reducing = std::move(reducing_);
  reducing->wait();
  const at::Tensor mean = reduced_.to(at::kFloat).div_(layout_.world_size());
  if (gradient_shard_.defined()) {
    gradient_shard_.add_(mean);
  } else {
    gradient_shard_ = mean;
  }
  reduced_ = at::Tensor();
  gradients_ = at::Tensor();
}

/// After a failure, which may have broken the reduction.
void Segment::discard_reduction() {
  if (!reducing_) return;
  try {
    reducing_->wait();
  } catch (const std::exception&) {
    // The failure that is under way tells more. The gradients are dropped.
  }
  reducing_.reset();
  reduced_ = at::Tensor();
}

void Segment::drop_gradients() {
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::Tensor();
  gradients_ = at::Tensor();
  gradient_shard_ = at::Tensor();
  laid_.clear();
  std::fill(used_here_.begin(), used_here_.end(), std::uint8_t{0});
  std::fill(used_anywhere_.begin(), used_anywhere_.end(), std::uint8_t{0});
}

std::int64_t Segment::unsharded_bytes() const {
  return layout_.padded_numel() * static_cast<std::int64_t>(c10::elementSize(key_.param_dtype));
}

std::int64_t Segment::gathered_bytes_now() const {
  return shard_is_parameter() ? 0 : storage_bytes(gathered_);
}

std::int64_t Segment::gradient_bytes_now() const {
  return gradient_shard_is_buffer() ? 0 : storage_bytes(gradients_);
}

}  // namespace fsdp
