#include "train/step.h"

#include <ATen/ops/empty.h>
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
  StopKind stop = StopKind::kNone;
  forward_backward(now, stop);
  const fsdp::GradientNorm norm = loss_scale_.gradient_norm(sharded_);
  now.norm = DeviceNumbers(norm.norm);
  if (const auto scale = loss_scale_.value()) now.scale.emplace(*scale);
  loss_scale_.update(norm);
  optimizer_.set_weight_decay(weight_decay(config_.optimizer, config_.train, step));
  optimizer_.step(now.made.measures.learning_rate, norm.grad_scale, norm.found_inf);
  sharded_.zero_grad();
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

/// The engine takes the mean over the ranks, so each rank's part of the mean loss is multiplied by their number.
void Stepper::forward_backward(InFlight& step, StopKind& stop) {
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
      if (late_) told = in_flight_.empty() || in_flight_.back().agreed_loss ? nullptr : &in_flight_.back();
      const double number = told == nullptr ? 0 : told->loss.first();
      stop = std::max(signalled_stop(), reporter_.stop_requested());
      agreement.emplace(mesh_.control(), Agreement{number, draw(), stop, traces_.wish()});
    }
    loss_scale_.scaled(loss * scale).backward();
  }
  const Agreement agreed = agreement->wait();
  if (told != nullptr) told->agreed_loss = agreed.loss;
  weight_ = agreed.next_weight;
  stop = agreed.stop;
  traces_.agreed(step.made.report.step, agreed.trace);
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
