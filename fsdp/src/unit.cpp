#include "fsdp/unit.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "schedule.h"

namespace fsdp {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Lets an autograd node refer to a unit without keeping the unit alive.
struct UnitLink : torch::CustomClassHolder {
  explicit UnitLink(std::weak_ptr<Unit> u) : unit(std::move(u)) {}
  std::weak_ptr<Unit> unit;
};

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

/// Identity on a run's inputs. Its backward marks the end of the run's own backward.
struct Unit::LeaveBackward : torch::autograd::Function<Unit::LeaveBackward> {
  static variable_list forward(AutogradContext* context, at::TensorList inputs,
                               const c10::intrusive_ptr<UnitLink>& link) {
    context->set_materialize_grads(false);
    context->saved_data["unit"] = at::IValue::make_capsule(link);
    return inputs.vec();
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto link = c10::static_intrusive_pointer_cast<UnitLink>(context->saved_data["unit"].toCapsule());
    if (const auto unit = link->unit.lock(); unit && --unit->open_runs_ <= 0) unit->leave_backward();
    gradients.emplace_back();  // for the link
    return gradients;
  }
};

Unit::Unit(std::string name, UnitLayout layout, std::vector<at::Tensor> parameters, Schedule& schedule,
           const ShardOptions& options)
    : name_(std::move(name)),
      layout_(std::move(layout)),
      parameters_(std::move(parameters)),
      schedule_(schedule),
      options_(options) {
  const auto supported = [](at::ScalarType type) { return type == at::kFloat || type == at::kBFloat16; };
  TORCH_CHECK(supported(options_.param_dtype) && supported(options_.reduce_dtype), "unit ", name_,
              ": param_dtype and reduce_dtype must be float32 or bfloat16, got ", options_.param_dtype, " and ",
              options_.reduce_dtype);
  TORCH_CHECK(options_.prefetch_depth >= 0, "unit ", name_, ": prefetch_depth ", options_.prefetch_depth,
              ": want 0 or more");
  TORCH_CHECK(parameters_.size() == layout_.parameters().size(), "unit ", name_, ": layout of ",
              layout_.parameters().size(), " parameters for ", parameters_.size());
  schedule_.add(*this);
  take_over_parameters();
}

Unit::~Unit() = default;

bool Unit::shard_is_parameter() const {
  return layout_.world_size() == 1 && options_.param_dtype == at::kFloat;
}

void Unit::take_over_parameters() {
  const at::NoGradGuard no_grad;
  const Communicator& communicator = schedule_.communicator();
  const auto on_device = at::TensorOptions().device(communicator.device());
  shard_ = at::zeros({layout_.chunk()}, on_device.dtype(at::kFloat));
  gathered_ =
      shard_is_parameter() ? shard_ : at::empty({layout_.padded_numel()}, on_device.dtype(options_.param_dtype));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& parameter = parameters_[i];
    const ParameterInfo& info = layout_.parameters()[i];
    const Slice slice = layout_.slice(info, communicator.rank());
    if (slice.length > 0)
      shard_.narrow(0, slice.shard_offset, slice.length)
          .copy_(parameter.detach().reshape({-1}).narrow(0, slice.begin, slice.length));
    parameter.mutable_grad() = at::Tensor();
    // The module's members and its dictionary hold this very TensorImpl. So the TensorImpl stays, and only its storage
    // is replaced.
    parameter.set_data(gathered_.narrow(0, info.offset, info.numel).view(info.shape).variable_data());
  }
  if (shard_is_parameter()) {
    state_ = State::kUnsharded;
  } else {
    free_storage(gathered_);
  }
}

at::Tensor Unit::run(at::Tensor input, const std::function<at::Tensor(at::Tensor)>& forward) {
  std::vector<at::Tensor> inputs;
  inputs.push_back(std::move(input));
  return run_list(std::move(inputs), [&forward](std::vector<at::Tensor> list) {
    std::vector<at::Tensor> outputs;
    outputs.push_back(forward(std::move(list.front())));
    return outputs;
  })[0];
}

std::vector<at::Tensor> Unit::run_list(std::vector<at::Tensor> inputs,
                                       const std::function<std::vector<at::Tensor>(std::vector<at::Tensor>)>& forward) {
  gather_with(schedule_.enter_forward(*this));
  const Schedule::Run nesting(schedule_);
  std::vector<at::Tensor> outputs = forward(link_inputs(std::move(inputs)));
  leave_forward(outputs);
  return outputs;
}

void Unit::gather_with(const std::vector<Unit*>& next) {
  unshard();
  wait_unsharded();
  for (Unit* unit : next) {
    if (unit->state_ != State::kSharded) continue;
    unit->unshard();
    ++unit->prefetches_;
  }
}

std::vector<at::Tensor> Unit::link_inputs(std::vector<at::Tensor> inputs) {
  // A run without an input to link counts too. Its backward may still be to come when the backward of a later run is
  // over. So the unit stays gathered until the end of the whole backward.
  if (at::GradMode::is_enabled()) ++open_runs_;
  std::vector<at::Tensor> linked;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    at::Tensor& input = inputs[i];
    if (!input.defined()) continue;
    if (options_.cast_inputs && input.is_floating_point()) input = input.to(options_.param_dtype);
    if (!at::GradMode::is_enabled() || !input.requires_grad()) continue;
    linked.push_back(input);
    places.push_back(i);
  }
  if (linked.empty()) return inputs;
  linked = LeaveBackward::apply(at::TensorList(linked), c10::make_intrusive<UnitLink>(weak_from_this()));
  for (std::size_t i = 0; i < places.size(); ++i) inputs[places[i]] = std::move(linked[i]);
  return inputs;
}

void Unit::leave_forward(const std::vector<at::Tensor>& outputs) {
  bool backward_will_come = false;
  for (const at::Tensor& output : outputs) {
    if (!at::GradMode::is_enabled() || !output.defined() || !output.requires_grad()) continue;
    backward_will_come = true;
    output.register_hook([self = weak_from_this()](const at::Tensor&) {
      if (const auto unit = self.lock()) unit->enter_backward();
    });
  }
  schedule_.leave_forward(*this, backward_will_come);
  if (options_.reshard_after_forward || !backward_will_come) reshard();
}

void Unit::enter_backward() {
  if (in_backward_) return;
  in_backward_ = true;
  gather_with(schedule_.enter_backward(*this));
  if (layout_.trainable()) lay_gradients();
}

void Unit::leave_backward() {
  if (!in_backward_) return;
  in_backward_ = false;
  reshard();
  if (layout_.trainable() && schedule_.gradient_sync()) start_reduce();
}

void Unit::reduce_left_over() {
  if (gradients_.defined() && !reducing_) start_reduce();
}

void Unit::end_backward() {
  open_runs_ = 0;
  reshard();  // the unit may have been gathered ahead for a backward that did not come
  for (std::size_t i = 0; i < parameters_.size() && !gradients_.defined(); ++i)
    TORCH_CHECK(!parameters_[i].grad().defined(), "unit ", name_, ": the gradient of ", layout_.parameters()[i].name,
                " came after the unit's backward had ended; use the parameter only inside the unit's run()");
}

void Unit::unshard() {
  if (state_ != State::kSharded) return;
  const at::NoGradGuard no_grad;
  refill_storage(gathered_, unsharded_bytes());
  schedule_.count_gathered(unsharded_bytes());
  Communicator& communicator = schedule_.communicator();
  gathered_.narrow(0, communicator.rank() * layout_.chunk(), layout_.chunk()).copy_(shard_);
  gathering_ = communicator.all_gather_into(gathered_, name_);
  state_ = State::kGathering;
  ++gathers_;
}

void Unit::wait_unsharded() {
  if (state_ == State::kSharded) unshard();
  if (state_ == State::kUnsharded) return;
  gathering_->wait();
  gathering_.reset();
  state_ = State::kUnsharded;
}

void Unit::reshard() {
  if (state_ == State::kSharded || shard_is_parameter()) return;
  wait_unsharded();
  free_storage(gathered_);
  schedule_.count_gathered(-unsharded_bytes());
  state_ = State::kSharded;
}

void Unit::shard_changed() {
  reshard();
}

/// Gives the parameters zeroed gradients, which are views of the reduction's input. Autograd adds to them in place.
/// With one rank in fp32 that buffer is the gradient shard itself.
void Unit::lay_gradients() {
  // The same backward may enter the unit twice. Autograd must not add to a buffer that is being sent.
  finish_reduce();
  if (!gradients_.defined()) {
    const auto on_device = at::TensorOptions().device(shard_.device());
    gradients_ = at::zeros({layout_.padded_numel()}, on_device.dtype(options_.reduce_dtype));
    schedule_.count_unreduced(gradient_bytes_now());
  }
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterInfo& info = layout_.parameters()[i];
    if (info.trainable) parameters_[i].mutable_grad() = gradients_.narrow(0, info.offset, info.numel).view(info.shape);
  }
}

void Unit::start_reduce() {
  if (gradient_shard_is_buffer()) {
    gradient_shard_ = gradients_;
    return;
  }
  schedule_.admit_reduction(*this);
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::Tensor();
  const at::NoGradGuard no_grad;
  reduced_ = layout_.world_size() == 1 ? gradients_ : at::empty({layout_.chunk()}, gradients_.options());
  reducing_ = schedule_.communicator().reduce_scatter(gradients_, reduced_, name_);
}

void Unit::finish_reduce() {
  if (!reducing_) return;
  const at::NoGradGuard no_grad;
  reducing_->wait();
  reducing_.reset();
  const at::Tensor mean = reduced_.to(at::kFloat).div_(layout_.world_size());
  if (gradient_shard_.defined()) {
    gradient_shard_.add_(mean);
  } else {
    gradient_shard_ = mean;
  }
  reduced_ = at::Tensor();
  free_gradients();
}

bool Unit::gradient_shard_is_buffer() const {
  return layout_.world_size() == 1 && options_.reduce_dtype == at::kFloat;
}

void Unit::free_gradients() {
  schedule_.count_unreduced(-gradient_bytes_now());
  gradients_ = at::Tensor();
}

void Unit::zero_grad() {
  finish_reduce();
  in_backward_ = false;  // still true after a backward that threw
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::Tensor();
  gradient_shard_ = at::Tensor();
  if (gradients_.defined()) free_gradients();
}

std::int64_t Unit::sharded_bytes() const {
  return storage_bytes(shard_);
}

std::int64_t Unit::unsharded_bytes() const {
  return layout_.padded_numel() * static_cast<std::int64_t>(c10::elementSize(options_.param_dtype));
}

std::int64_t Unit::gathered_bytes_now() const {
  return shard_is_parameter() ? 0 : storage_bytes(gathered_);
}

std::int64_t Unit::gradient_bytes_now() const {
  return gradient_shard_is_buffer() ? 0 : storage_bytes(gradients_);
}

}  // namespace fsdp
