#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "contract/exit_codes.h"
#include "rank/environment.h"
#include "rank/reporter.h"
#include "train/config.h"
#include "train/recipe.h"

namespace worker {

/// How a rank's training ended, when it ended in an orderly way.
struct Outcome {
  contract::ExitCode code = contract::kExitDone;
  std::string reason;
};

/// One rank's training of one run, from the rendezvous to the last checkpoint.
///
/// [Note: leaving together] In each step every rank puts its loss and its stop request into one small all-gather, which
/// runs beside the last backward. So all ranks see the same requests at the same step boundary and leave there
/// together. They save first for kSave, and do not save for kNow, which wins.
///
/// A run that was stopped and resumed at the same world size and thread count continues bit for bit. For that, each
/// checkpoint holds the sampler's position and names the text, and random numbers are seeded anew in each step (see
/// train/step_seed.h).
///
/// A step whose gradients are not finite changes no weight; see train/skipped_steps.h. In fp16 the loss is scaled; see
/// train/loss_scale.h.
///
/// With checkpoint.best, a step with a better value is saved at once; see [Note: best checkpoint] in
/// train/best_checkpoint.h. A resume continues from the newest checkpoint, never from the best one.
class Trainer {
 public:
  /// Only keeps the references, which must outlive the Trainer.
  Trainer(const RunConfig& config, const RankEnvironment& environment, Reporter& reporter,
          MakeRecipe make_recipe = worker::make_recipe);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Trains, resuming from the newest valid checkpoint. Prints one line a step on stdout. Collective. Throws
  /// UsageError, FencedError, std::bad_alloc, c10::Error, std::runtime_error. After a throw, peers may be gone and
  /// collectives in progress, so the process should end without destroying the Trainer.
  Outcome run();

 private:
  class Run;
  std::unique_ptr<Run> run_;
};

}  // namespace worker
