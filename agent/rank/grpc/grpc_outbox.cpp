#include "agent/rank/grpc/grpc_outbox.h"

#include <algorithm>
#include <utility>

namespace agent::rank {
namespace {

void write(const StepReport& from, muster::v1::StepMetric& to) {
  to.set_step(from.step);
  if (from.step_ms > 0) to.set_step_ms(from.step_ms);
  if (from.memory_bytes > 0) to.set_memory_bytes(from.memory_bytes);
  if (from.memory_peak_bytes > 0) to.set_memory_peak_bytes(from.memory_peak_bytes);
  if (from.bytes_communicated >= 0) to.set_bytes_communicated(from.bytes_communicated);
  to.set_at_ms(from.at_ms);
  for (const auto& value : from.values) {
    auto& told = *to.add_values();
    told.set_series(value.series);
    told.set_value(value.value);
  }
}

void write(const spec::Series& from, muster::v1::Series& to) {
  to.set_name(from.name);
  to.set_unit(from.unit);
  to.set_better(std::string(to_string(from.better)));
  to.set_over_ranks(std::string(to_string(from.over_ranks)));
}

}  // namespace

std::size_t GrpcOutbox::bytes_of(const StepReport& step) {
  std::size_t bytes = sizeof step;
  for (const auto& value : step.values) bytes += sizeof value + value.series.size();
  return bytes;
}

bool GrpcOutbox::is_told(const spec::Series& series) const {
  return rank_ == 0 || series.over_ranks != spec::OverRanks::kRank0;
}

bool GrpcOutbox::is_told(const std::string& series) const {
  const auto known = std::ranges::find(series_, series, &spec::Series::name);
  return known == series_.end() || is_told(*known);
}

void GrpcOutbox::declare(std::vector<spec::Series> series) {
  series_ = std::move(series);
}

void GrpcOutbox::add(const StepReport& step) {
  StepReport told = step;
  std::erase_if(told.values, [&](const SeriesValue& value) { return !is_told(value.series); });
  if (told.values.size() > spec::kMostSeries) told.values.resize(spec::kMostSeries);
  told.values.shrink_to_fit();
  bytes_ += bytes_of(told);
  steps_.push_back(std::move(told));
  while (steps_.size() > kMaxSteps || (bytes_ > kMaxBytes && steps_.size() > 1)) {
    drop_steps_below(first_step_ + 1);
    ++lost_;
  }
}

void GrpcOutbox::add(const muster::v1::CheckpointSaved& checkpoint) {
  checkpoints_.push_back(checkpoint);
  if (checkpoints_.size() <= kMaxCheckpoints) return;
  checkpoints_.pop_front();
  ++first_checkpoint_;
}

GrpcOutbox::Batch GrpcOutbox::fill(muster::v1::HeartbeatRequest& request, std::uint64_t from_step,
                                   std::uint64_t from_checkpoint) const {
  const auto skipped_steps = std::min<std::size_t>(steps_.size(), std::max(from_step, first_step_) - first_step_);
  const auto skipped_checkpoints =
      std::min<std::size_t>(checkpoints_.size(), std::max(from_checkpoint, first_checkpoint_) - first_checkpoint_);
  Batch batch;
  batch.first_step = first_step_ + skipped_steps;
  batch.first_checkpoint = first_checkpoint_ + skipped_checkpoints;
  batch.checkpoints = std::min(checkpoints_.size() - skipped_checkpoints, kBatch);
  std::size_t bytes = 0;
  for (auto at = skipped_steps; at < steps_.size() && batch.steps < kBatch; ++at) {
    bytes += bytes_of(steps_[at]);
    if (batch.steps > 0 && bytes > kBatchBytes) {
      batch.full = true;
      break;
    }
    write(steps_[at], *request.add_metrics());
    ++batch.steps;
  }
  batch.full = batch.full || batch.steps == kBatch || batch.checkpoints == kBatch;
  for (std::size_t i = 0; i < batch.checkpoints; ++i) {
    *request.add_checkpoints() = checkpoints_[skipped_checkpoints + i];
  }
  for (const auto& series : series_) {
    if (batch.steps > 0 && is_told(series)) write(series, *request.add_series());
  }
  return batch;
}

void GrpcOutbox::drop_steps_below(std::uint64_t until) {
  while (!steps_.empty() && first_step_ < until) {
    bytes_ -= bytes_of(steps_.front());
    steps_.pop_front();
    ++first_step_;
  }
}

void GrpcOutbox::acknowledge(const Batch& batch, std::size_t steps, std::size_t checkpoints) {
  acknowledge_until(batch.first_step + std::min(steps, batch.steps),
                    batch.first_checkpoint + std::min(checkpoints, batch.checkpoints));
}

void GrpcOutbox::acknowledge_until(std::uint64_t step, std::uint64_t checkpoint) {
  drop_steps_below(step);
  while (!checkpoints_.empty() && first_checkpoint_ < checkpoint) {
    checkpoints_.pop_front();
    ++first_checkpoint_;
  }
}

}  // namespace agent::rank
