#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "agent/rank/reporter.h"
#include "fsdp/files/checkpoint.h"
#include "worker/train/best_checkpoint.h"

namespace worker {

/// Saves the steps of a run, and tells reporter, log and BestCheckpoint of each save whose checkpoint is on disk.
///
/// A save may run beside the training; see [Note: saving beside the training] in fsdp/files/checkpoint.h. Ranks see its
/// end at different steps. Good news is told as soon as a rank sees it. A failure is told by finish(), where all ranks
/// wait, so that a failure that ends the run ends it at the same step on all ranks.
///
/// A failure is a warning. It is an error for a save that must succeed, for the third in a row, and for a fenced
/// attempt. Not thread-safe.
class Saves {
 public:
  struct Options {
    bool beside_training = false;
    int world_size = 1;
    std::function<void(const std::string&)> say;  // writes a line of the log
  };
  /// All arguments must outlive the object.
  Saves(fsdp::Checkpointer& checkpointer, BestCheckpoint& best, agent::rank::Reporter& reporter, Options options);

  /// Tells that the run's state is that of the checkpoint of `step`.
  void resumed(std::int64_t step) { saved_step_ = step; }
  bool has(std::int64_t step) const { return saved_step_ == step; }

  /// Saves a step, beside the training unless it `must` succeed. Collective. Calls finish() first. Throws FencedError,
  /// or fsdp::CheckpointError for a failure that is an error.
  void save(const fsdp::CheckpointState& state, bool must);
  /// Tells of a save beside the training that has ended well. Does not block and never fails.
  void look();
  /// Waits for a save beside the training, if there is one, and tells its outcome. Collective. Throws as save().
  void finish();
  /// Waits until old checkpoints are removed, and tells which could not be.
  void finish_removal();

 private:
  using Clock = std::chrono::steady_clock;
  struct UnderWay {
    std::int64_t step = 0;
    Clock::time_point start;
    std::optional<double> blocked_ms;  // of a save beside the training: how long its copy took
  };

  template <class Outcome>
  void settle(const Outcome& outcome, bool must);
  void tell(const fsdp::SavedCheckpoint& saved);

  fsdp::Checkpointer& checkpointer_;
  BestCheckpoint& best_;
  agent::rank::Reporter& reporter_;
  const Options options_;
  std::optional<UnderWay> under_way_;
  std::int64_t saved_step_ = -1;
  int failures_ = 0;  // in a row
};

}  // namespace worker
