#pragma once

#include <exception>
#include <memory>
#include <string>

#include "agent/rank/environment.h"
#include "agent/rank/reporter.h"
#include "spec/exit_codes.h"
#include "worker/train/recipe.h"
#include "worker/train/train_config.h"

namespace worker {

/// How a rank's training ended, when it ended in an orderly way.
struct Outcome {
  spec::ExitCode code = spec::kExitDone;
  std::string reason;
};

/// How a rank ends that an exception has ended: the exit code of its kind, and the exception's own text on one line.
/// Memory that lacks, of the host or of a GPU, is spec::kExitOutOfMemory whichever library says so. LibTorch's C++
/// backtrace and CUDA's advice to developers of kernels are left out.
Outcome outcome_of(const std::exception_ptr& failure);

/// One rank's training of one run, from the rendezvous to the last checkpoint: setup.h, resume.h, step.h.
///
/// [Note: leaving together] In each step every rank puts its loss and its stop request into one small all-reduce, which
/// runs beside the last backward. Sums are enough: of losses and weights, and of how many ranks are asked to stop. So
/// all ranks see the same requests at the same step boundary and leave there together. They save first for kSave, and
/// do not save for kNow, which wins.
///
/// A run that was stopped and resumed at the same world size and thread count continues bit for bit. For that, each
/// checkpoint holds the loader's position and names the data, and random numbers are seeded anew in each step (see
/// worker/train/step_trace.h).
///
/// A step whose gradients are not finite changes no weight; see worker/train/step_measures.h. In fp16 the loss is
/// scaled; see worker/train/optimizer_of_run.h.
///
/// With checkpoint.best, a step with a better value is saved at once; see [Note: best checkpoint] in
/// worker/train/saves.h. A resume continues from the newest checkpoint, never from the best one.
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
