#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "agent/rank/reporter.h"
#include "fsdp/files/checkpoint.h"
#include "fsdp/text/json.h"
#include "spec/series.h"

namespace worker {

/// Decides which checkpoint of a run is the best by one series, "checkpoint.best" of the run file.
///
/// [Note: best checkpoint] A step with a better value than the best so far is offered. The step's checkpoint holds the
/// offer in its manifest, extra.best = {series, value, step}. So one commit publishes offer and weights together. Every
/// later checkpoint repeats the entry, so the newest checkpoint always names the best one.
/// The checkpointer removes old checkpoints only after a commit, and never the step that the newest manifest names. So
/// after a crash between any two lines the newest checkpoint names a best one that exists: the old best before the
/// commit, the new best after it. A failed save withdraws its offer.
///
/// States: nothing offered -> offer() -> offered -> committed() or dropped() -> nothing offered. Makes no I/O. Not
/// thread-safe.
class BestCheckpoint {
 public:
  /// Without a series: offers nothing and writes nothing to manifests.
  BestCheckpoint() = default;
  explicit BestCheckpoint(spec::Series series) : series_(std::move(series)) {}

  /// The series' name; empty without a series.
  const std::string& series() const { return series_.name; }

  /// True if the value is finite and better than that of the kept step, if any. Only a step that will be saved now may
  /// be offered.
  bool is_better(double value) const;
  /// Offers `step` as the best one, for its checkpoint's manifest. The caller saves that checkpoint next and calls
  /// committed() or dropped().
  void offer(std::int64_t step, double value) { offered_ = Choice{value, step}; }
  /// Makes the offered step the kept one. Returns false if no step was offered.
  bool committed();
  void dropped() { offered_.reset(); }

  /// The step to keep besides the newest ones: the offered step, otherwise the kept one.
  std::optional<std::int64_t> step() const;
  /// The entry extra.best of a manifest for that step; null if there is none.
  fsdp::Json manifest() const;
  /// Takes the kept step from a manifest's extra.best. Returns false and keeps nothing if the entry names another
  /// series or is incomplete.
  bool restore(const fsdp::Json& saved);
  /// Forgets the kept step, because its checkpoint is missing on disk.
  void forget() { kept_.reset(); }

  /// The line "best validation/loss 2.31 at step 120 (kept in <folder>)". Call it only with a kept step.
  std::string line(const std::filesystem::path& checkpoint) const;

 private:
  struct Choice {
    double value = 0;
    std::int64_t step = 0;
  };
  const std::optional<Choice>& told() const { return offered_ ? offered_ : kept_; }

  spec::Series series_;
  std::optional<Choice> kept_, offered_;
};

/// The series of that name, which the recipe reports and whose lower or higher values are better. Throws
/// base::UsageError naming checkpoint.best otherwise.
spec::Series series_of(std::string_view recipe, const std::string& name);

/// The BestCheckpoint of a run of this recipe with this checkpoint.best; "" gives one without a series. Throws
/// base::UsageError when the recipe does not report the series, or when neither lower nor higher values of it are
/// better.
BestCheckpoint best_checkpoint_of(std::string_view recipe, const std::string& series);

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
