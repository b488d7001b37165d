#pragma once

#include <memory>

#include "agent/rank/environment.h"
#include "agent/rank/reporter.h"
#include "worker/train/config.h"
#include "worker/train/loop.h"
#include "worker/train/recipe.h"

namespace worker {

/// One rank's training of one run, from the rendezvous to the last checkpoint: setup.h, resume.h, loop.h.
///
/// A run that was stopped and resumed at the same world size and thread count continues bit for bit. For that, each
/// checkpoint holds the loader's position and names the data, and random numbers are seeded anew in each step (see
/// worker/train/step_seed.h).
///
/// A step whose gradients are not finite changes no weight; see worker/train/skipped_steps.h. In fp16 the loss is
/// scaled; see worker/train/loss_scale.h.
///
/// With checkpoint.best, a step with a better value is saved at once; see [Note: best checkpoint] in
/// worker/train/best_checkpoint.h. A resume continues from the newest checkpoint, never from the best one.
class Trainer {
 public:
  /// Only keeps the references, which must outlive the Trainer, and a copy of the run.
  Trainer(const RunConfig& config, const agent::rank::RankEnvironment& environment, agent::rank::Reporter& reporter,
          MakeRecipe make_recipe);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Trains, resuming from the newest valid checkpoint. Prints one line a step on stdout. Collective. Throws
  /// base::UsageError, agent::rank::FencedError, std::bad_alloc, c10::Error, std::runtime_error. After a throw, peers
  /// may be gone and collectives in progress, so the process should end without destroying the Trainer.
  Outcome run();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace worker
