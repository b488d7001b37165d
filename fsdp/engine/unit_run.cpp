// A unit's run, as its forward calls it and as autograd knows it.
#include <ATen/core/custom_class.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "fsdp/engine/schedule.h"
#include "fsdp/engine/unit.h"

namespace fsdp {

/// One run of a unit that autograd has recorded: a stretch of graph between the run's inputs and its outputs. Hooks and
/// nodes of the graph hold it, so it lives as long as its graph. A graph that is dropped takes its runs along.
///
/// [Note: second order] A backward with create_graph records the unit's backward too. That stretch of graph needs the
/// unit's parameters as a run does, and is a RecordedRun of its own: its inputs are the gradients of the outputs, and
/// its outputs are the gradients of the inputs.
struct RecordedRun : torch::CustomClassHolder {
  RecordedRun(const std::shared_ptr<Unit>& of, std::int64_t version);
  ~RecordedRun() override;

  /// Links `inputs` to this run: their backward ends the run. Returns `inputs` with those replaced that need a
  /// gradient.
  static void link_inputs(const c10::intrusive_ptr<RecordedRun>& self, std::vector<at::Tensor>& inputs);
  /// Makes the backward of `output` begin the run. Returns whether it will.
  static bool hook_output(const c10::intrusive_ptr<RecordedRun>& self, const at::Tensor& output);
  /// The backward of the run's inputs has come.
  void leave();
  /// True if a backward with these nodes reaches the run.
  bool is_in(const std::unordered_set<torch::autograd::Node*>& nodes) const;

  std::weak_ptr<Unit> unit;
  std::int64_t parameter_version;
  torch::autograd::Node* last_node = nullptr;  // its backward ends the run; null without an input that needs a gradient
  std::vector<torch::autograd::Node*> output_nodes;
  bool awaited = false;   // the current backward has begun the unit and has yet to end this run
  int left_in_task = -1;  // the backward that ended this run last
  std::vector<c10::intrusive_ptr<RecordedRun>> second_order;
};

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kRun = "run";

/// Identity on a run's inputs. Its backward ends the run.
struct LeaveRun : torch::autograd::Function<LeaveRun> {
  static variable_list forward(AutogradContext* context, at::TensorList inputs,
                               const c10::intrusive_ptr<RecordedRun>& run) {
    context->set_materialize_grads(false);
    context->saved_data[kRun] = at::IValue::make_capsule(run);
    return inputs.vec();
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto run = c10::static_intrusive_pointer_cast<RecordedRun>(context->saved_data[kRun].toCapsule());
    for (const auto& second : run->second_order)
      for (const at::Tensor& gradient : gradients) RecordedRun::hook_output(second, gradient);
    run->second_order.clear();
    run->leave();
    gradients.emplace_back();  // for the run
    return gradients;
  }
};

/// Records the backward of `run` that begins with `gradient`: see [Note: second order].
at::Tensor record_backward(RecordedRun& run, const std::shared_ptr<Unit>& unit, const at::Tensor& gradient) {
  auto second = c10::make_intrusive<RecordedRun>(unit, run.parameter_version);
  std::vector<at::Tensor> linked{gradient};
  RecordedRun::link_inputs(second, linked);
  run.second_order.push_back(std::move(second));
  return linked.front();
}

/// Casts the floating-point tensors among these. Autograd records it.
void cast(std::vector<at::Tensor>& tensors, at::ScalarType dtype) {
  for (at::Tensor& tensor : tensors)
    if (tensor.defined() && tensor.is_floating_point()) tensor = tensor.to(dtype);
}

}  // namespace

RecordedRun::RecordedRun(const std::shared_ptr<Unit>& of, std::int64_t version) : unit(of), parameter_version(version) {
  of->recorded_.push_back(this);
}

RecordedRun::~RecordedRun() {
  const auto owner = unit.lock();
  if (owner == nullptr) return;
  if (awaited) --owner->awaited_;
  auto& runs = owner->recorded_;
  runs.erase(std::find(runs.begin(), runs.end(), this));
}

void RecordedRun::link_inputs(const c10::intrusive_ptr<RecordedRun>& self, std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> linked;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !inputs[i].requires_grad()) continue;
    linked.push_back(inputs[i]);
    places.push_back(i);
  }
  if (linked.empty()) return;
  linked = LeaveRun::apply(at::TensorList(linked), self);
  self->last_node = linked.front().grad_fn().get();
  for (std::size_t i = 0; i < places.size(); ++i) inputs[places[i]] = std::move(linked[i]);
}

bool RecordedRun::hook_output(const c10::intrusive_ptr<RecordedRun>& self, const at::Tensor& output) {
  // A leaf is no result of the run. A hook would stay on it for ever.
  if (!at::GradMode::is_enabled() || !output.defined() || !output.requires_grad() || output.is_leaf()) return false;
  self->output_nodes.push_back(output.grad_fn().get());
  output.register_hook([self](const at::Tensor& gradient) {
    const auto owner = self->unit.lock();
    if (owner == nullptr) return at::Tensor();
    owner->enter_run(*self);
    return at::GradMode::is_enabled() && gradient.defined() ? record_backward(*self, owner, gradient) : at::Tensor();
  });
  return true;
}

void RecordedRun::leave() {
  if (const auto owner = unit.lock()) owner->leave_run(*this);
}

bool RecordedRun::is_in(const std::unordered_set<torch::autograd::Node*>& nodes) const {
  if (last_node != nullptr) return nodes.count(last_node) > 0;
  return std::any_of(output_nodes.begin(), output_nodes.end(), [&](auto* node) { return nodes.count(node) > 0; });
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
  check_values("run()");
  Schedule::Run run(*schedule_, *this);
  const bool recompute = torch::autograd::get_current_graph_task_id() != -1;
  const Tracer::Scope span(&schedule_->tracer(), recompute ? "recompute" : "forward", name_);
  if (running_ == 1 && !in_backward_ && !recompute) follow_requires_grad();
  gather_with(schedule_->enter_forward(*this));
  if (running_ == 1) note_versions(/*resident_only=*/true);
  if (options_.precision.cast_inputs) cast(inputs, options_.precision.param_dtype);
  c10::intrusive_ptr<RecordedRun> recorded;
  if (at::GradMode::is_enabled()) {
    recorded = c10::make_intrusive<RecordedRun>(shared_from_this(), parameter_version_);
    RecordedRun::link_inputs(recorded, inputs);
  }
  std::vector<at::Tensor> outputs = forward(std::move(inputs));
  check_unchanged(/*resident_too=*/true);
  check_outputs(outputs);
  if (options_.precision.output_dtype) cast(outputs, *options_.precision.output_dtype);
  bool backward_will_come = false;
  if (recorded)
    for (const at::Tensor& output : outputs) backward_will_come |= RecordedRun::hook_output(recorded, output);
  schedule_->leave_forward(*this, backward_will_come);
  run.done();
  // A recompute stays gathered: its backward comes next.
  if (running_ == 1 && !in_backward_ && !stays_gathered() &&
      (!backward_will_come || (options_.reshard_after_forward && !recompute)))
    leave_gathered(backward_will_come);
  return outputs;
}

void Unit::check_outputs(const std::vector<at::Tensor>& outputs) const {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const at::Tensor& output = outputs[i];
    if (!output.defined() || !output.has_storage()) continue;
    for (const auto& segment : segments_)
      TORCH_CHECK(!share_storage(output, segment->gathered_), "unit ", name_, ": output ", i,
                  " of run() is a parameter or a view of one, and parameters are freed after the run; return a copy, "
                  "such as parameter.clone()");
  }
}

/// Counts the runs that the current backward will end. `reached` is one of them.
void Unit::await_runs(const RecordedRun& reached) {
  const int task = torch::autograd::get_current_graph_task_id();
  const auto* nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  const bool alone = options_.reduce_each_run;
  if (task == awaiting_task_ && !alone) return;
  awaiting_task_ = task;
  for (RecordedRun* run : recorded_) {
    if (run->awaited || run->left_in_task == task) continue;
    if (run != &reached && (alone || nodes == nullptr || !run->is_in(*nodes))) continue;
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
  schedule_->follow_gradients();
  in_backward_ = true;
  schedule_->tracer().open("backward", name_);
  gather_with(schedule_->enter_backward(*this), options_.backward_reads_parameters);
  note_versions(/*resident_only=*/true);
  lay_gradients();
}

void Unit::leave_run(RecordedRun& run) {
  run.left_in_task = torch::autograd::get_current_graph_task_id();
  if (run.awaited) --awaited_;
  run.awaited = false;
  if (awaited_ == 0 && !ends_unseen_) leave_backward();
}

void Unit::leave_backward() {
  if (!in_backward_) return;
  check_unchanged(/*resident_too=*/true);
  forget_runs();
  drop_part();
  if (options_.reshard_after_backward) release();
  const at::NoGradGuard no_grad;
  for (const auto& segment : segments_) segment->fold_gradients();
  if (schedule_->gradient_sync()) start_reduce();
  schedule_->tracer().close("backward", name_);
}

/// No run is awaited any more: the unit's backward has ended, or is given up.
void Unit::forget_runs() {
  in_backward_ = ends_unseen_ = false;
  awaited_ = 0;
  awaiting_task_ = -1;
  for (RecordedRun* run : recorded_) run->awaited = false;
}

}  // namespace fsdp
