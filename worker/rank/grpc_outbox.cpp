#include "rank/grpc_outbox.h"

#include <algorithm>

namespace worker {
namespace {

void write(const StepReport& from, muster::v1::StepMetric& to) {
  to.set_step(from.step);
  to.set_loss(from.loss);
  to.set_tokens_per_s(from.tokens_per_s);
  to.set_step_ms(from.step_ms);
  to.set_memory_bytes(from.memory_bytes);
  to.set_memory_peak_bytes(from.memory_peak_bytes);
  to.set_bytes_communicated(from.bytes_communicated);
  to.set_learning_rate(from.learning_rate);
  to.set_grad_norm(from.grad_norm);
  if (from.validation_loss) to.set_validation_loss(*from.validation_loss);
  to.set_at_ms(from.at_ms);
}

/// Drops from the front of `queue`, whose first element has the number `first`, all below `until`.
template <typename Queue>
void drop_below(Queue& queue, std::uint64_t& first, std::uint64_t until) {
  while (!queue.empty() && first < until) {
    queue.pop_front();
    ++first;
  }
}

}  // namespace

void GrpcOutbox::add(const StepReport& step) {
  steps_.push_back(step);
  if (steps_.size() <= kMaxSteps) return;
  drop_below(steps_, first_step_, first_step_ + 1);
  ++lost_;
}

void GrpcOutbox::add(const muster::v1::CheckpointSaved& checkpoint) {
  checkpoints_.push_back(checkpoint);
  if (checkpoints_.size() > kMaxCheckpoints) drop_below(checkpoints_, first_checkpoint_, first_checkpoint_ + 1);
}

GrpcOutbox::Batch GrpcOutbox::fill(muster::v1::HeartbeatRequest& request, std::uint64_t from_step,
                                   std::uint64_t from_checkpoint) const {
  const auto skipped_steps = std::min<std::size_t>(steps_.size(), std::max(from_step, first_step_) - first_step_);
  const auto skipped_checkpoints =
      std::min<std::size_t>(checkpoints_.size(), std::max(from_checkpoint, first_checkpoint_) - first_checkpoint_);
  const Batch batch{first_step_ + skipped_steps, first_checkpoint_ + skipped_checkpoints,
                    std::min(steps_.size() - skipped_steps, kBatch),
                    std::min(checkpoints_.size() - skipped_checkpoints, kBatch)};
  for (std::size_t i = 0; i < batch.steps; ++i) write(steps_[skipped_steps + i], *request.add_metrics());
  for (std::size_t i = 0; i < batch.checkpoints; ++i) {
    *request.add_checkpoints() = checkpoints_[skipped_checkpoints + i];
  }
  return batch;
}

void GrpcOutbox::acknowledge(const Batch& batch, std::size_t steps, std::size_t checkpoints) {
  drop_below(steps_, first_step_, batch.first_step + std::min(steps, batch.steps));
  drop_below(checkpoints_, first_checkpoint_, batch.first_checkpoint + std::min(checkpoints, batch.checkpoints));
}

}  // namespace worker
