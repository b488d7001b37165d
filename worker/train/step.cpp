#include "train/step.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "fsdp/tensor_bytes.h"
#include "rank/signals.h"
#include "train/schedule.h"
#include "train/step_seed.h"
#include "train/step_trace.h"

namespace worker {
DeviceNumbers::DeviceNumbers(const at::Tensor& values) {
  const at::Tensor wide = values.detach().to(at::kDouble);
  if (wide.is_cpu()) {
    host_ = wide.clone();
    return;
  }
  host_ = at::empty(wide.sizes(), at::TensorOptions(at::kDouble).pinned_memory(true));
  host_.copy_(wide, /*non_blocking=*/true);
  copied_.emplace(wide.device().type());
  copied_->record(c10::impl::VirtualGuardImpl(wide.device().type()).getStream(wide.device()));
}

double DeviceNumbers::first() const {
  if (copied_) copied_->synchronize();
  return *host_.const_data_ptr<double>();
}

Stepper::Stepper(const RunConfig& config, const BatchSplit& split, const RankEnvironment& environment,
                 Reporter& reporter, Recipe& recipe, ShardedSampler& sampler, fsdp::DeviceMesh& mesh,
                 fsdp::ShardedModel& sharded, fsdp::Optimizer& optimizer, LossScale& loss_scale)
    : config_(config),
      split_(split),
      environment_(environment),
      reporter_(reporter),
      recipe_(recipe),
      sampler_(sampler),
      mesh_(mesh),
      sharded_(sharded),
      optimizer_(optimizer),
      loss_scale_(loss_scale),
      late_(!mesh.device().is_cpu()),
      traces_(reporter, environment.rank, config.train.steps) {}

void Stepper::prepare() {
  weight_ = mesh_.control().all_reduce(draw());
}

/// Records the place that the device's current stream has reached, with its time.
void Stepper::mark(std::optional<c10::Event>& event) const {
  if (!late_) return;
  const c10::Device device = mesh_.device();
  event.emplace(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  event->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

/// Takes this rank's samples of the step that comes, and returns their weight.
double Stepper::draw() {
  samples_ = sampler_.position();
  micro_batches_.clear();
  double weight = 0;
  for (std::int64_t i = 0; i < split_.accumulation; ++i) {
    micro_batches_.push_back(sampler_.take(split_.micro_batch_size));
    weight += recipe_.weight(micro_batches_.back());
  }
  return weight;
}

StopKind Stepper::make(std::int64_t step) {
  StepTrace trace(config_, step + 1, mesh_, traces_.records(step + 1));
  InFlight now;
  now.made.report.step = step + 1;
  now.start = Clock::now();
  mark(now.begun);
  const fsdp::Traffic all_before = mesh_.traffic(), shard_before = mesh_.shard().traffic();
  fsdp::TensorBytes* const tensors = fsdp::TensorBytes::current();
  if (tensors != nullptr) tensors->forget_peak();
  now.weight = weight_;
  now.made.measures.learning_rate = learning_rate(config_.train, step);
  at::manual_seed(step_seed(config_.train.seed, step, environment_.rank));
  optimizer_.set_weight_decay(weight_decay(config_.optimizer, config_.train, step));
  const StopKind stop = graph_ ? replay_step(now) : call_step(now);
  if (config_.train.step_delay_ms > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(config_.train.step_delay_ms));
  }
  mark(now.ended);
  const fsdp::Traffic all = mesh_.traffic() - all_before, of_shard = mesh_.shard().traffic() - shard_before;
  now.made.report.bytes_communicated = all.wire_bytes;
  StepMeasures& measures = now.made.measures;
  if (mesh_.world_size() > 1) {
    if (!late_ || mesh_.shares_gpus()) measures.wait_ms = std::chrono::duration<double, std::milli>(all.waited).count();
    measures.gathered_bytes = of_shard.gathered_bytes;
    measures.scattered_bytes = of_shard.scattered_bytes;
  }
  if (tensors != nullptr && !late_) measures.tensor_peak_bytes = tensors->peak();
  in_flight_.push_back(std::move(now));
  if (const auto written = trace.write()) traces_.wrote(step + 1, *written);
  return stop;
}

StopKind Stepper::call_step(InFlight& step) {
  const StopKind stop = forward_backward(step);
  const fsdp::GradientNorm norm = loss_scale_.gradient_norm(sharded_);
  step.norm = DeviceNumbers(norm.norm);
  if (const auto scale = loss_scale_.value()) step.scale.emplace(*scale);
  loss_scale_.update(norm);
  optimizer_.step(step.made.measures.learning_rate, norm.grad_scale, norm.found_inf);
  sharded_.zero_grad();
  return stop;
}

/// The engine takes the mean over the ranks, so each rank's part of the mean loss is multiplied by their number.
StopKind Stepper::forward_backward(InFlight& step) {
  const double scale = static_cast<double>(environment_.world_size) / weight_;
  at::Tensor sum;
  std::optional<AgreementUnderWay> agreement;
  // The step whose loss the ranks agree on meanwhile: this one where the loss is known already, else the one before.
  InFlight* told = &step;
  for (std::int64_t i = 0; i < split_.accumulation; ++i) {
    const bool last = i + 1 == split_.accumulation;
    sharded_.set_requires_gradient_sync(last);
    const at::Tensor loss = recipe_.loss(micro_batches_[static_cast<std::size_t>(i)]);
    const at::Tensor wide = loss.detach().to(at::kDouble);
    sum = sum.defined() ? sum + wide : wide;
    if (last) {
      step.loss = DeviceNumbers(sum);
      if (late_) told = untold();
      agreement = start_agreement(told);
    }
    loss_scale_.scaled(loss * scale).backward();
  }
  return finish_agreement(*agreement, told, step);
}

/// The step before, unless its loss is agreed on.
Stepper::InFlight* Stepper::untold() {
  return in_flight_.empty() || in_flight_.back().agreed_loss ? nullptr : &in_flight_.back();
}

AgreementUnderWay Stepper::start_agreement(const InFlight* told) {
  const double number = told == nullptr ? 0 : told->loss.first();
  const StopKind stop = std::max(signalled_stop(), reporter_.stop_requested());
  return {mesh_.control(), Agreement{number, draw(), stop, traces_.wish()}};
}

StopKind Stepper::finish_agreement(AgreementUnderWay& agreement, InFlight* told, const InFlight& step) {
  const Agreement agreed = agreement.wait();
  if (told != nullptr) told->agreed_loss = agreed.loss;
  weight_ = agreed.next_weight;
  traces_.agreed(step.made.report.step, agreed.trace);
  return agreed.stop;
}

void Stepper::use_graph(std::unique_ptr<fsdp::DeviceGraph> graph) {
  graph_ = std::make_unique<fsdp::StepGraph>(sharded_, optimizer_, std::move(graph));
  const auto number = at::TensorOptions(at::kFloat).device(mesh_.device());
  learning_rate_ = at::zeros({}, number);
  loss_weight_ = at::zeros({}, number);
}

std::optional<std::int64_t> Stepper::graph_bytes() const {
  return graph_ && graph_->is_recorded() ? std::optional(graph_->bytes()) : std::nullopt;
}

/// The device has its work before the host waits for the loss of the step before.
StopKind Stepper::replay_step(InFlight& step) {
  std::vector<at::Tensor> values;
  for (const auto& samples : micro_batches_)
    for (const at::Tensor& value : recipe_.inputs(samples)) values.push_back(value);
  const std::vector<at::Tensor>& inputs = graph_->inputs(values);
  learning_rate_.fill_(step.made.measures.learning_rate);
  loss_weight_.fill_(static_cast<double>(environment_.world_size) / weight_);
  const std::vector<at::Tensor>& out = graph_->run([&] { return graphed(inputs); });
  step.loss = DeviceNumbers(out[0]);
  step.norm = DeviceNumbers(out[1]);
  if (out.size() > 2) step.scale.emplace(out[2]);
  InFlight* const told = untold();
  AgreementUnderWay agreement = start_agreement(told);
  return finish_agreement(agreement, told, step);
}

/// What a graph holds of a step. Returns the sum of this rank's losses, the norm of the gradient, and the scale of the
/// loss if there is one.
std::vector<at::Tensor> Stepper::graphed(const std::vector<at::Tensor>& inputs) {
  const auto each = static_cast<std::ptrdiff_t>(inputs.size()) / split_.accumulation;
  at::Tensor sum;
  for (std::int64_t i = 0; i < split_.accumulation; ++i) {
    sharded_.set_requires_gradient_sync(i + 1 == split_.accumulation);
    const auto first = inputs.begin() + i * each;
    const at::Tensor loss = recipe_.loss_of({first, first + each});
    const at::Tensor wide = loss.detach().to(at::kDouble);
    sum = sum.defined() ? sum + wide : wide;
    loss_scale_.scaled(loss * loss_weight_).backward();
  }
  const fsdp::GradientNorm norm = loss_scale_.gradient_norm(sharded_);
  std::vector<at::Tensor> out{sum, norm.norm};
  if (const auto scale = loss_scale_.value()) out.push_back(scale->clone());
  loss_scale_.update(norm);
  optimizer_.step(learning_rate_, norm.grad_scale, norm.found_inf);
  sharded_.zero_grad();
  return out;
}

std::optional<Stepper::Made> Stepper::take(std::size_t keep) {
  if (in_flight_.size() <= keep) return std::nullopt;
  InFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (!step.agreed_loss) step.agreed_loss = mesh_.control().all_reduce(step.loss.first());
  StepMeasures& measures = step.made.measures;
  measures.loss = *step.agreed_loss / step.weight;
  measures.grad_norm = step.norm.first();
  if (step.scale) measures.loss_scale = step.scale->first();
  if (step.ended) step.ended->synchronize();
  step.made.report.step_ms = step.ended ? step.begun->elapsedTime(*step.ended)
                                        : std::chrono::duration<double, std::milli>(Clock::now() - step.start).count();
  measures.tokens_per_s =
      static_cast<double>(split_.batch_size * recipe_.tokens_per_sample()) / step.made.report.step_ms * 1e3;
  return std::move(step.made);
}

}  // namespace worker
