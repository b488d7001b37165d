#include "fsdp/engine/unit.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "fsdp/comm/buffer_pool.h"
#include "fsdp/engine/recorded_run.h"
#include "fsdp/engine/schedule.h"
#include "fsdp/memory/storage.h"

namespace fsdp {
namespace {

/// Casts the floating-point tensors among these. Autograd records it.
void cast(std::vector<at::Tensor>& tensors, at::ScalarType dtype) {
  for (at::Tensor& tensor : tensors)
    if (tensor.defined() && tensor.is_floating_point()) tensor = tensor.to(dtype);
}

}  // namespace

Unit::Unit(std::string name, std::vector<ParameterInfo> infos, std::vector<at::Tensor> parameters,
           std::shared_ptr<Schedule> schedule, const ShardOptions& options)
    : name_(std::move(name)),
      infos_(std::move(infos)),
      parameters_(std::move(parameters)),
      schedule_(std::move(schedule)),
      options_(options) {
  // A unit that stays gathered from forward to backward would take a slot from those that come and go.
  const auto own_pool = [](const Communicator& of) {
    return std::make_shared<BufferPool>(of.device(), of.peer_memory());
  };
  const bool stays = !options_.reshard_after_forward;
  const bool keeps = stays || !options_.reshard_after_backward;
  gathered_pool_ = keeps ? own_pool(schedule_->communicator()) : schedule_->gathered_pool();
  gradient_pool_ = stays ? own_pool(schedule_->reduce()) : schedule_->gradient_pool();
  const double divisor = options_.precision.gradient_divide_factor.value_or(1);
  TORCH_CHECK(divisor > 0 && std::isfinite(divisor), "unit ", name_, ": gradient_divide_factor ", divisor,
              ": want a finite number above 0");
  const at::ScalarType output = options_.precision.output_dtype.value_or(at::kFloat);
  TORCH_CHECK(output == at::kFloat || output == at::kBFloat16 || output == at::kHalf, "unit ", name_,
              ": output_dtype must be float32, bfloat16 or float16, got ", output);
  for (const int depth : {options_.prefetch_depth, options_.backward_prefetch_depth.value_or(0)})
    TORCH_CHECK(depth >= 0, "unit ", name_, ": prefetch_depth ", depth, ": want 0 or more");
  TORCH_CHECK(parameters_.size() == infos_.size(), "unit ", name_, ": ", infos_.size(), " places for ",
              parameters_.size(), " parameters");
  take_parameters();
  schedule_->add(*this);
}

Unit::~Unit() {
  schedule_->remove(*this);
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

/// Frees the gathered parameters after a run.
void Unit::leave_gathered(bool backward_will_come) {
  if (backward_will_come && options_.reshard_to_ranks > 0) keep_part();
  free_gathered();
}

void Unit::keep_part() {
  if (has_part_) return;
  const at::NoGradGuard no_grad;
  std::vector<c10::DataPtr> memory =
      take(*schedule_->part_pool(), [](const Segment& segment) { return segment.part_bytes(); });
  for (std::size_t i = 0; i < segments_.size(); ++i) segments_[i]->keep_part(std::move(memory[i]));
  schedule_->gather_stream().mark(values_ready_);
  has_part_ = true;
}

void Unit::drop_part() {
  if (!has_part_) return;
  for (const auto& segment : segments_) segment->drop_part();
  has_part_ = false;
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
  schedule_->follow_gradients();
  in_backward_ = true;
  schedule_->tracer().open("backward", name_);
  gather_with(schedule_->enter_backward(*this));
  note_versions(/*resident_only=*/true);
  lay_gradients();
}

void Unit::lay_gradients() {
  // One backward may enter the unit twice. Autograd must not add to a buffer that is being sent.
  finish_reduce();
  if (options_.tight) schedule_->finish_reductions();
  const at::NoGradGuard no_grad;
  const std::int64_t before = gradient_bytes_now();
  const auto wanted = [](const Segment& s) { return s.key().trainable && !s.has_gradients_ ? s.gradient_bytes() : 0; };
  std::vector<c10::DataPtr> memory = take(*gradient_pool_, wanted);
  for (std::size_t i = 0; i < segments_.size(); ++i)
    if (segments_[i]->key().trainable) segments_[i]->lay_gradients(std::move(memory[i]));
  schedule_->count_unreduced(gradient_bytes_now() - before);
}

/// One slot, divided among the segments. Segments that want 0 bytes get no memory.
std::vector<c10::DataPtr> Unit::take(BufferPool& pool,
                                     const std::function<std::int64_t(const Segment&)>& wanted) const {
  constexpr std::int64_t kCacheLine = 64;
  std::vector<std::int64_t> begin;
  std::int64_t bytes = 0;
  for (const auto& segment : segments_) {
    begin.push_back(bytes);
    bytes += (wanted(*segment) + kCacheLine - 1) / kCacheLine * kCacheLine;
  }
  std::vector<c10::DataPtr> memory(segments_.size());
  if (bytes == 0) return memory;
  const auto lease = pool.take(bytes);
  for (std::size_t i = 0; i < segments_.size(); ++i)
    if (wanted(*segments_[i]) > 0) memory[i] = lease->part(begin[i]);
  return memory;
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
  in_backward_ = ends_unseen_ = false;
  awaited_ = 0;
  awaiting_task_ = -1;
  for (RecordedRun* run : recorded_) run->awaited = false;
  drop_part();
  if (options_.reshard_after_backward) release();
  const at::NoGradGuard no_grad;
  for (const auto& segment : segments_) segment->fold_gradients();
  if (schedule_->gradient_sync()) start_reduce();
  schedule_->tracer().close("backward", name_);
}

bool Unit::has_unreduced() const {
  return std::any_of(segments_.begin(), segments_.end(), [](const auto& s) { return s->has_gradients_; });
}

void Unit::follow_gradients() {
  Segment::Shown shown;
  for (const auto& segment : segments_) segment->find_shown(shown);
  if (shown.gone == nullptr) return;
  TORCH_CHECK(shown.kept == nullptr, "unit ", name_, ": the gradient of ", shown.gone->name,
              " was removed after backward, and that of ", shown.kept == nullptr ? "" : shown.kept->name,
              " was not; drop all by zero_grad(), or leave a parameter out by ParameterGroup::skip");
  schedule_->participation().finish();  // it refers to the gradients
  zero_grad();
}

void Unit::check_step(const char* what) const {
  for (const auto& segment : segments_)
    TORCH_CHECK(!segment->is_unreduced_, what, ": unit ", name_,
                " has gradients that no backward has reduced; make the last backward of a step after "
                "set_requires_gradient_sync(true), or drop the gradients by zero_grad()");
  // With one rank users may change parameters between steps, and the shard has the change.
  if (state_ == State::kUnsharded) check_unchanged(/*resident_too=*/false);
}

void Unit::note_versions(bool resident_only) {
  for (const auto& segment : segments_)
    if (!resident_only || segment->shard_is_parameter()) segment->note_versions();
}

void Unit::check_unchanged(bool resident_too) const {
  for (const auto& segment : segments_)
    if (resident_too || !segment->shard_is_parameter()) segment->check_unchanged();
}

bool Unit::has_gradient() const {
  return std::any_of(segments_.begin(), segments_.end(), [](const auto& s) { return s->gradient_shard_.defined(); });
}

void Unit::reduce_left_over() {
  const at::NoGradGuard no_grad;
  start_reduce();
}

void Unit::end_backward() {
  // The unit may have been gathered ahead for a backward that did not come.
  if (options_.reshard_after_backward) release();
  for (const auto& segment : segments_)
    for (std::size_t i = 0; i < segment->parameters_.size() && !segment->has_gradients_; ++i)
      TORCH_CHECK(!segment->parameters_[i].grad().defined() || segment->shows(i), "unit ", name_, ": the gradient of ",
                  segment->layout().parameters()[i].name,
                  " came after the unit's backward had ended; use the parameter only inside the unit's run()");
  for (const auto& segment : segments_) segment->show_gradients();
}

/// Frees the gathered parameters unless a run or a backward needs them.
void Unit::release() {
  if (running_ == 0 && !in_backward_) free_gathered();
}

/// release() after a failure, which may have broken the all-gather.
void Unit::discard_gathered() {
  if (state_ == State::kGathering && running_ == 0 && !in_backward_) {
    for (const auto& segment : segments_) {
      try {
        segment->wait_unsharded();
      } catch (const std::exception&) {
        // The failure that is under way tells more. The bytes are dropped.
      }
    }
    state_ = State::kUnsharded;
  }
  drop_part();
  release();
}

/// Gives up what a backward has begun, and all gradients.
void Unit::abandon() {
  in_backward_ = ends_unseen_ = false;
  awaited_ = 0;
  awaiting_task_ = -1;
  for (RecordedRun* run : recorded_) run->awaited = false;
  discard_gathered();
  for (const auto& segment : segments_) segment->discard_reduction();
  zero_grad();
}

void Unit::set_forward_prefetch(std::vector<std::shared_ptr<Unit>> units) {
  forward_prefetch_.emplace();
  for (const auto& unit : units) forward_prefetch_->push_back(unit.get());
}

void Unit::set_backward_prefetch(std::vector<std::shared_ptr<Unit>> units) {
  backward_prefetch_.emplace();
  for (const auto& unit : units) backward_prefetch_->push_back(unit.get());
}

void Unit::unshard() {
  if (state_ != State::kSharded) return;
  const at::NoGradGuard no_grad;
  schedule_->gather_stream().run(values_ready_, [this] {
    const auto wanted = [](const Segment& s) { return s.shard_is_parameter() ? 0 : s.unsharded_bytes(); };
    std::vector<c10::DataPtr> memory = take(*gathered_pool_, wanted);
    for (std::size_t i = 0; i < segments_.size(); ++i) segments_[i]->unshard(std::move(memory[i]));
    schedule_->gather_stream().mark(gather_begun_);
  });
  schedule_->count_gathered(gathered_bytes_now());
  state_ = State::kGathering;
  ++gathers_;
}

void Unit::wait_unsharded() {
  if (state_ == State::kSharded) unshard();
  if (state_ == State::kUnsharded) return;
  schedule_->gather_stream().wait_for(gather_begun_);
  for (const auto& segment : segments_) segment->wait_unsharded();
  state_ = State::kUnsharded;
  note_versions(/*resident_only=*/false);
}

void Unit::reshard() {
  if (state_ == State::kSharded) return;
  wait_unsharded();
  check_unchanged(/*resident_too=*/false);
  free_gathered();
}

void Unit::free_gathered() {
  if (state_ == State::kSharded) return;
  wait_unsharded();
  const std::int64_t bytes = gathered_bytes_now();
  bool resident = true;
  for (const auto& segment : segments_) {
    segment->reshard();
    resident = resident && segment->shard_is_parameter();
  }
  schedule_->count_gathered(-bytes);
  if (!resident) state_ = State::kSharded;
}

void Unit::shard_changed() {
  has_values_.assign(has_values_.size(), true);
  shard_changed({});
}

void Unit::shard_changed(const std::vector<std::size_t>& parameters) {
  for (const std::size_t index : parameters) has_values_[index] = true;
  ++parameter_version_;
  schedule_->gather_stream().mark(values_ready_);
  free_gathered();
  drop_part();
}

void Unit::check_values(const char* what) const {
  const auto without = std::find(has_values_.begin(), has_values_.end(), false);
  if (without == has_values_.end()) return;
  const bool some = std::find(has_values_.begin(), has_values_.end(), true) != has_values_.end();
  const std::string& first = infos_[static_cast<std::size_t>(without - has_values_.begin())].name;
  TORCH_CHECK(false, "unit ", name_, ": ", what, " needs values, and ",
              some ? "parameter " + first + " was" : "the parameters were",
              " built on the meta device; call initialize(), load_tensors() or load_full_state(), or load a checkpoint "
              "first");
}

void Unit::start_reduce() {
  if (!has_unreduced()) return;
  schedule_->admit_reduction(*this);
  for (const auto& segment : segments_)
    if (segment->has_gradients_ && !segment->is_reducing()) segment->start_reduce(*schedule_->scratch_pool());
}

void Unit::add_replicas() {
  reduce_further(&Segment::add_replicas);
}

void Unit::finish_reduce() {
  reduce_further(&Segment::finish_reduce);
}

void Unit::reduce_further(void (Segment::*part)()) {
  const at::NoGradGuard no_grad;
  const std::int64_t before = gradient_bytes_now();
  for (const auto& segment : segments_) (*segment.*part)();
  schedule_->count_unreduced(gradient_bytes_now() - before);
}

void Unit::zero_grad() {
  finish_reduce();
  const std::int64_t before = gradient_bytes_now();
  for (const auto& segment : segments_) segment->drop_gradients(/*with_memory=*/options_.tight);
  schedule_->count_unreduced(-before);
}

std::int64_t Unit::numel() const {
  std::int64_t sum = 0;
  for (const auto& segment : segments_) sum += segment->layout().numel();
  return sum;
}

std::int64_t Unit::sharded_bytes() const {
  std::int64_t sum = 0;
  for (const auto& segment : segments_) sum += static_cast<std::int64_t>(segment->shard().nbytes());
  return sum;
}

std::int64_t Unit::unsharded_bytes() const {
  std::int64_t sum = 0;
  for (const auto& segment : segments_) sum += segment->unsharded_bytes();
  return sum;
}

std::int64_t Unit::gathered_bytes_now() const {
  std::int64_t sum = 0;
  for (const auto& segment : segments_) sum += segment->gathered_bytes_now();
  return sum;
}

std::int64_t Unit::gradient_bytes_now() const {
  std::int64_t sum = 0;
  for (const auto& segment : segments_) sum += segment->gradient_bytes_now();
  return sum;
}

}  // namespace fsdp
