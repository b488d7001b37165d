#include "fsdp/unit.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "recorded_run.h"
#include "schedule.h"

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

Unit::Unit(std::string name, UnitLayout layout, std::vector<at::Tensor> parameters, std::shared_ptr<Schedule> schedule,
           const ShardOptions& options)
    : name_(std::move(name)),
      layout_(std::move(layout)),
      parameters_(std::move(parameters)),
      schedule_(std::move(schedule)),
      options_(options) {
  const auto supported = [](at::ScalarType type) { return type == at::kFloat || type == at::kBFloat16; };
  TORCH_CHECK(supported(options_.param_dtype) && supported(options_.reduce_dtype), "unit ", name_,
              ": param_dtype and reduce_dtype must be float32 or bfloat16, got ", options_.param_dtype, " and ",
              options_.reduce_dtype);
  TORCH_CHECK(options_.prefetch_depth >= 0, "unit ", name_, ": prefetch_depth ", options_.prefetch_depth,
              ": want 0 or more");
  TORCH_CHECK(parameters_.size() == layout_.parameters().size(), "unit ", name_, ": layout of ",
              layout_.parameters().size(), " parameters for ", parameters_.size());
  schedule_->add(*this);
  take_over_parameters();
}

Unit::~Unit() {
  schedule_->remove(*this);
}

bool Unit::shard_is_parameter() const {
  return layout_.world_size() == 1 && options_.param_dtype == at::kFloat;
}

void Unit::take_over_parameters() {
  const at::NoGradGuard no_grad;
  const Communicator& communicator = schedule_->communicator();
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
  Schedule::Run run(*schedule_, *this);
  gather_with(schedule_->enter_forward(*this));
  cast(inputs);
  c10::intrusive_ptr<RecordedRun> recorded;
  if (at::GradMode::is_enabled()) {
    recorded = c10::make_intrusive<RecordedRun>(shared_from_this(), parameter_version_);
    RecordedRun::link_inputs(recorded, inputs);
  }
  std::vector<at::Tensor> outputs = forward(std::move(inputs));
  check_outputs(outputs);
  bool backward_will_come = false;
  if (recorded)
    for (const at::Tensor& output : outputs) backward_will_come |= RecordedRun::hook_output(recorded, output);
  schedule_->leave_forward(*this, backward_will_come);
  run.done();
  // A recompute stays gathered: its backward comes next.
  const bool recompute = torch::autograd::get_current_graph_task_id() != -1;
  if (running_ == 1 && !in_backward_ && (!backward_will_come || (options_.reshard_after_forward && !recompute)))
    reshard();
  return outputs;
}

void Unit::cast(std::vector<at::Tensor>& inputs) const {
  if (!options_.cast_inputs) return;
  for (at::Tensor& input : inputs)
    if (input.defined() && input.is_floating_point()) input = input.to(options_.param_dtype);
}

void Unit::check_outputs(const std::vector<at::Tensor>& outputs) const {
  for (std::size_t i = 0; i < outputs.size(); ++i)
    TORCH_CHECK(!outputs[i].defined() || !outputs[i].has_storage() || !outputs[i].is_alias_of(gathered_), "unit ",
                name_, ": output ", i,
                " of run() is a parameter or a view of one, and parameters are freed after "
                "the run; return a copy, such as parameter.clone()");
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

/// Counts the runs that the current backward will end. `reached` is one of them.
void Unit::await_runs(const RecordedRun& reached) {
  const int task = torch::autograd::get_current_graph_task_id();
  const auto* nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  if (task == awaiting_task_) return;
  awaiting_task_ = task;
  for (RecordedRun* run : recorded_) {
    if (run->awaited || run->left_in_task == task) continue;
    if (run != &reached && (nodes == nullptr || !run->is_in(*nodes))) continue;
    if (run->last_node == nullptr) {
      ends_unseen_ = true;
    } else {
      run->awaited = true;
      ++awaited_;
    }
  }
}

void Unit::enter_run(RecordedRun& run) {
  TORCH_CHECK(run.parameter_version == parameter_version_, "unit ", name_,
              ": backward of a forward that ran before the unit's parameters changed (optimizer step, load, or another "
              "requires_grad); run the forward again after the change");
  await_runs(run);
  if (in_backward_) return;
  in_backward_ = true;
  gather_with(schedule_->enter_backward(*this));
  if (layout_.trainable()) lay_gradients();
}

void Unit::leave_run(RecordedRun& run) {
  run.left_in_task = torch::autograd::get_current_graph_task_id();
  if (run.awaited) --awaited_;
  run.awaited = false;
  if (awaited_ == 0 && !ends_unseen_) leave_backward();
}

void Unit::leave_backward() {
  if (!in_backward_) return;
  in_backward_ = ends_unseen_ = false;
  awaited_ = 0;
  awaiting_task_ = -1;
  for (RecordedRun* run : recorded_) run->awaited = false;
  release();
  fold_gradients();
  if (layout_.trainable() && schedule_->gradient_sync()) start_reduce();
}

void Unit::reduce_left_over() {
  if (gradients_.defined() && !reducing_) start_reduce();
}

void Unit::end_backward() {
  release();  // the unit may have been gathered ahead for a backward that did not come
  for (std::size_t i = 0; i < parameters_.size() && !gradients_.defined(); ++i)
    TORCH_CHECK(!parameters_[i].grad().defined(), "unit ", name_, ": the gradient of ", layout_.parameters()[i].name,
                " came after the unit's backward had ended; use the parameter only inside the unit's run()");
}

/// Frees the gathered parameters unless a run or a backward needs them.
void Unit::release() {
  if (running_ == 0 && !in_backward_) reshard();
}

/// release() after a failure, which may have broken the all-gather.
void Unit::discard_gathered() {
  if (state_ == State::kGathering && running_ == 0 && !in_backward_) {
    try {
      gathering_->wait();
    } catch (const std::exception&) {
      // The failure that is under way tells more. The bytes are dropped.
    }
    gathering_.reset();
    state_ = State::kUnsharded;
  }
  release();
}

/// Gives up what a backward has begun, and all gradients.
void Unit::abandon() {
  in_backward_ = ends_unseen_ = false;
  awaited_ = 0;
  awaiting_task_ = -1;
  for (RecordedRun* run : recorded_) run->awaited = false;
  discard_gathered();
  if (reducing_) {
    try {
      reducing_->wait();
    } catch (const std::exception&) {
      // As above.
    }
    reducing_.reset();
    reduced_ = at::Tensor();
  }
  zero_grad();
}

void Unit::unshard() {
  if (state_ != State::kSharded) return;
  const at::NoGradGuard no_grad;
  refill_storage(gathered_, unsharded_bytes());
  schedule_->count_gathered(unsharded_bytes());
  Communicator& communicator = schedule_->communicator();
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
  schedule_->count_gathered(-unsharded_bytes());
  state_ = State::kSharded;
}

void Unit::shard_changed() {
  ++parameter_version_;
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
    schedule_->count_unreduced(gradient_bytes_now());
  }
  const at::NoGradGuard no_grad;
  laid_.resize(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterInfo& info = layout_.parameters()[i];
    if (!info.trainable) continue;
    laid_[i] = gradients_.narrow(0, info.offset, info.numel).view(info.shape);
    parameters_[i].mutable_grad() = laid_[i];
  }
}

/// Copies gradients into the buffer that are not there. Autograd replaces a parameter's gradient by a sum of its own
/// in a backward with create_graph, and a hook may replace it too.
void Unit::fold_gradients() {
  if (!gradients_.defined()) return;
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!laid_[i].defined()) continue;
    at::Tensor& gradient = parameters_[i].mutable_grad();
    if (gradient.is_same(laid_[i])) continue;
    TORCH_CHECK(gradient.defined() && gradient.sizes() == laid_[i].sizes(), "unit ", name_, ": the gradient of ",
                layout_.parameters()[i].name, gradient.defined() ? " got another shape" : " was removed",
                " during backward, by a hook; scale or add to the gradient in place instead");
    if (!gradient.is_alias_of(laid_[i])) laid_[i].copy_(gradient.detach());
    gradient = laid_[i];
  }
}

void Unit::start_reduce() {
  if (gradient_shard_is_buffer()) {
    gradient_shard_ = gradients_;
    return;
  }
  schedule_->admit_reduction(*this);
  fold_gradients();
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::Tensor();
  const at::NoGradGuard no_grad;
  reduced_ = layout_.world_size() == 1 ? gradients_ : at::empty({layout_.chunk()}, gradients_.options());
  reducing_ = schedule_->communicator().reduce_scatter(gradients_, reduced_, name_);
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
  schedule_->count_unreduced(-gradient_bytes_now());
  gradients_ = at::Tensor();
  laid_.clear();
}

void Unit::zero_grad() {
  finish_reduce();
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
