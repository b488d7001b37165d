#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "rank/environment.h"
#include "rank/exit_codes.h"
#include "rank/reporter.h"
#include "train/config.h"

namespace worker {

/// Why a rank's training ended, when it ended in order.
struct Outcome {
  ExitCode code = kExitDone;
  std::string reason;
};

/// One rank's training of one run, from meeting the other ranks to the last checkpoint.
///
/// [Note: leaving together] Each step, every rank puts its loss and its stop request into one small all-gather that
/// runs beside the last backward. All ranks thus see the same requests at the same step boundary and leave there
/// together: after a save for kSave, without one for kNow (which wins).
///
/// The loss, the sampler's position and the random state are part of each checkpoint, and the text is that of the
/// checkpoint, so a run that was stopped and resumed at the same world size and thread count continues bit for bit.
///
/// With checkpoint.best, a step with a better value is saved at once, see [Note: best checkpoint] in
/// train/best_checkpoint.h. A resume goes on from the newest checkpoint, never from the best one.
class Trainer {
 public:
  /// The references must outlive it. Does nothing yet.
  Trainer(const RunConfig& config, const RankEnvironment& environment, Reporter& reporter);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Trains, resuming from the newest valid checkpoint. Prints a line a step on stdout. Collective. Throws UsageError,
  /// FencedError, std::bad_alloc, c10::Error, std::runtime_error. After a throw, peers may be gone and collectives
  /// under way: a process should end without destroying the Trainer.
  Outcome run();

 private:
  class Run;
  std::unique_ptr<Run> run_;
};

}  // namespace worker
