#pragma once

#include <cstdint>
#include <deque>

#include "muster/v1/rank_service.pb.h"
#include "rank/reporter.h"

namespace worker {

/// Steps and checkpoints that the controller has not acknowledged yet, oldest first. Bounded: beyond, the oldest are
/// lost and counted. Not thread-safe.
class GrpcOutbox {
 public:
  static constexpr std::size_t kMaxSteps = 100'000;
  static constexpr std::size_t kMaxCheckpoints = 1'000;
  /// Of each kind in one heartbeat.
  static constexpr std::size_t kBatch = 512;

  /// Which of them a heartbeat carries.
  struct Batch {
    std::uint64_t first_step = 0, first_checkpoint = 0;  // counted since the beginning
    std::size_t steps = 0, checkpoints = 0;
    bool empty() const { return steps == 0 && checkpoints == 0; }
  };

  void add(const StepReport& step);
  void add(const muster::v1::CheckpointSaved& checkpoint);

  /// Puts the oldest of each kind into `request`.
  Batch fill(muster::v1::HeartbeatRequest& request) const { return fill(request, 0, 0); }
  /// The same of those from the numbers `from_step` and `from_checkpoint` on, as Batch counts them.
  Batch fill(muster::v1::HeartbeatRequest& request, std::uint64_t from_step, std::uint64_t from_checkpoint) const;
  /// Forgets the first `steps` and `checkpoints` of `batch`. What was added or lost since it was filled is no matter.
  void acknowledge(const Batch& batch, std::size_t steps, std::size_t checkpoints);

  std::size_t waiting() const { return steps_.size() + checkpoints_.size(); }
  /// True if one heartbeat holds all.
  bool fits_one_batch() const { return steps_.size() <= kBatch && checkpoints_.size() <= kBatch; }
  /// Steps lost since the beginning.
  std::uint64_t lost() const { return lost_; }

 private:
  std::deque<StepReport> steps_;
  std::deque<muster::v1::CheckpointSaved> checkpoints_;
  std::uint64_t first_step_ = 0, first_checkpoint_ = 0;
  std::uint64_t lost_ = 0;
};

}  // namespace worker
