#include "worker/train/step.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "agent/rank/signals.h"
#include "fsdp/memory/storage.h"

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

std::vector<double> DeviceNumbers::all() const {
  if (copied_) copied_->synchronize();
  const auto* values = host_.const_data_ptr<double>();
  return {values, values + host_.numel()};
}

Stepper::Stepper(const RunConfig& config, const BatchSplit& split, const agent::rank::RankEnvironment& environment,
                 agent::rank::Reporter& reporter, Recipe& recipe, Loader& loader, Parts& parts, LossScale& loss_scale)
    : config_(config),
      split_(split),
      environment_(environment),
      reporter_(reporter),
      recipe_(recipe),
      loader_(loader),
      parts_(parts),
      mesh_(parts.mesh()),
      sharded_(parts.trained()),
      optimizer_(parts.optimizer()),
      loss_scale_(loss_scale),
      series_(recipe.step_series()),
      late_(!mesh_.device().is_cpu()),
      traces_(reporter, environment.rank, config.train.steps) {}

void Stepper::prepare() {
  const Size mine = draw();
  size_.weight = mesh_.control().all_reduce(mine.weight);
  size_.tokens = mesh_.control().all_reduce(mine.tokens);
}

/// Records the place that the device's current stream has reached, with its time.
void Stepper::mark(std::optional<c10::Event>& event) const {
  if (!late_) return;
  const c10::Device device = mesh_.device();
  event.emplace(device.type(), c10::EventFlag::BACKEND_DEFAULT);
  event->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

/// Takes this rank's batches of the step that comes, and returns their size.
Stepper::Size Stepper::draw() {
  samples_ = loader_.position();
  epoch_ = loader_.epoch();
  const double waited = loader_.waited_ms();
  micro_batches_.clear();
  Size size;
  for (std::int64_t i = 0; i < split_.accumulation; ++i) {
    micro_batches_.push_back(loader_.next(split_.micro_batch_size));
    size.weight += micro_batches_.back().weight;
    size.tokens += static_cast<double>(micro_batches_.back().tokens);
  }
  data_wait_ms_ = loader_.waited_ms() - waited;
  return size;
}

agent::rank::StopKind Stepper::make(std::int64_t step) {
  StepTrace trace(config_, step + 1, mesh_, traces_.records(step + 1));
  InFlight now;
  now.made.report.step = step + 1;
  now.start = Clock::now();
  mark(now.begun);
  const fsdp::Traffic all_before = mesh_.traffic(), shard_before = mesh_.shard().traffic();
  fsdp::TensorBytes* const tensors = fsdp::TensorBytes::current();
  if (tensors != nullptr) tensors->forget_peak();
  now.size = size_;
  now.made.measures.data_wait_ms = data_wait_ms_;
  now.made.measures.learning_rate = learning_rate(config_.train, step);
  at::manual_seed(step_seed(config_.train.seed, step, environment_.rank));
  optimizer_.set_weight_decay(weight_decay(config_.optimizer, config_.train, step));
  recipe_.before_step(step, epoch_);
  const agent::rank::StopKind stop = graph_ ? replay_step(now) : call_step(now);
  recipe_.after_step(step + 1);
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

/// The factor that a loss is multiplied by. The engine takes the mean over the ranks, so each rank's part of the mean
/// loss is multiplied by their number. Of a batch without any target the gradient is zero, not a division by zero.
double Stepper::loss_factor() const {
  return size_.weight > 0 ? static_cast<double>(environment_.world_size) / size_.weight : 0;
}

agent::rank::StopKind Stepper::call_step(InFlight& step) {
  const agent::rank::StopKind stop = forward_backward(step);
  const fsdp::GradientNorm norm = loss_scale_.gradient_norm(sharded_);
  step.norm = DeviceNumbers(norm.norm);
  if (const auto scale = loss_scale_.value()) step.scale.emplace(*scale);
  loss_scale_.update(norm);
  optimizer_.step(step.made.measures.learning_rate, norm.grad_scale, norm.found_inf);
  sharded_.zero_grad();
  return stop;
}

/// Adds a batch's sums, as one tensor [1 + series]: the loss, and the recipe's further series.
void Stepper::add_losses(at::Tensor& sums, const Losses& losses) const {
  std::vector<at::Tensor> all{losses.sum.detach().to(at::kDouble)};
  TORCH_CHECK(losses.more.size() == series_.size(), "the recipe gives ", losses.more.size(), " sums for its ",
              series_.size(), " series");
  for (const at::Tensor& more : losses.more) all.push_back(more.detach().to(at::kDouble));
  const at::Tensor of_batch = all.size() == 1 ? all.front() : at::stack(all);
  sums = sums.defined() ? sums + of_batch : of_batch;
}

agent::rank::StopKind Stepper::forward_backward(InFlight& step) {
  const double scale = loss_factor();
  at::Tensor sums;
  std::optional<AgreementUnderWay> agreement;
  // The step whose loss the ranks agree on meanwhile: this one where the loss is known already, else the one before.
  InFlight* told = &step;
  for (std::int64_t i = 0; i < split_.accumulation; ++i) {
    const bool last = i + 1 == split_.accumulation;
    sharded_.set_requires_gradient_sync(last);
    const Losses losses = recipe_.loss(micro_batches_[static_cast<std::size_t>(i)].to(mesh_.device()));
    add_losses(sums, losses);
    if (last) {
      step.losses = DeviceNumbers(sums);
      if (late_) told = untold();
      agreement = start_agreement(told);
    }
    loss_scale_.scaled(losses.sum * scale).backward();
  }
  return finish_agreement(*agreement, told, step);
}

/// The step before, unless its loss is agreed on.
Stepper::InFlight* Stepper::untold() {
  return in_flight_.empty() || in_flight_.back().agreed_losses ? nullptr : &in_flight_.back();
}

AgreementUnderWay Stepper::start_agreement(const InFlight* told) {
  Agreement mine;
  mine.losses = told == nullptr ? std::vector<double>(1 + series_.size()) : told->losses.all();
  const Size next = draw();
  mine.next_weight = next.weight;
  mine.next_tokens = next.tokens;
  mine.stop = std::max(agent::rank::signalled_stop(), reporter_.stop_requested());
  mine.trace = traces_.wish();
  return {mesh_.control(), mine};
}

agent::rank::StopKind Stepper::finish_agreement(AgreementUnderWay& agreement, InFlight* told, const InFlight& step) {
  const Agreement agreed = agreement.wait();
  if (told != nullptr) told->agreed_losses = agreed.losses;
  size_ = {agreed.next_weight, agreed.next_tokens};
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
agent::rank::StopKind Stepper::replay_step(InFlight& step) {
  std::vector<at::Tensor> values;
  for (const Batch& batch : micro_batches_)
    for (const auto& [name, value] : batch.tensors) values.push_back(value);
  const std::vector<at::Tensor>& inputs = graph_->inputs(values);
  learning_rate_.fill_(step.made.measures.learning_rate);
  loss_weight_.fill_(loss_factor());
  const std::vector<at::Tensor>& out = graph_->run([&] { return graphed(inputs); });
  step.losses = DeviceNumbers(out[0]);
  step.norm = DeviceNumbers(out[1]);
  if (out.size() > 2) step.scale.emplace(out[2]);
  InFlight* const told = untold();
  AgreementUnderWay agreement = start_agreement(told);
  return finish_agreement(agreement, told, step);
}

/// Does the part of a step that a graph holds. Returns the sums of this rank's losses, the norm of the gradient, and
/// the scale of the loss if there is one.
std::vector<at::Tensor> Stepper::graphed(const std::vector<at::Tensor>& inputs) {
  at::Tensor sums;
  auto input = inputs.begin();
  for (std::int64_t i = 0; i < split_.accumulation; ++i) {
    sharded_.set_requires_gradient_sync(i + 1 == split_.accumulation);
    Batch batch = micro_batches_[static_cast<std::size_t>(i)];
    for (auto& [name, value] : batch.tensors) value = *input++;
    const Losses losses = recipe_.loss(batch);
    add_losses(sums, losses);
    loss_scale_.scaled(losses.sum * loss_weight_).backward();
  }
  const fsdp::GradientNorm norm = loss_scale_.gradient_norm(sharded_);
  std::vector<at::Tensor> out{sums, norm.norm};
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
  if (!step.agreed_losses) {
    step.agreed_losses = step.losses.all();
    for (double& sum : *step.agreed_losses) sum = mesh_.control().all_reduce(sum);
  }
  StepMeasures& measures = step.made.measures;
  // A batch without targets teaches nothing: its loss is no number, and it is told as a skipped step.
  const auto mean = [&](std::size_t i) { return (*step.agreed_losses)[i] / step.size.weight; };
  measures.loss = mean(0);
  for (std::size_t i = 0; i < series_.size(); ++i) measures.more.push_back({series_[i], mean(i + 1)});
  measures.grad_norm = step.norm.first();
  if (step.scale) measures.loss_scale = step.scale->first();
  if (step.ended) step.ended->synchronize();
  step.made.report.step_ms = step.ended ? step.begun->elapsedTime(*step.ended)
                                        : std::chrono::duration<double, std::milli>(Clock::now() - step.start).count();
  const double seconds = step.made.report.step_ms / 1e3;
  if (step.size.tokens > 0) {
    measures.tokens_per_s = step.size.tokens / seconds;
  } else {
    measures.samples_per_s = static_cast<double>(split_.batch_size) / seconds;
  }
  return std::move(step.made);
}

}  // namespace worker
