#pragma once

#include <cstdint>
#include <string>

#include "spec/exit_codes.h"
#include "worker/train/resume.h"
#include "worker/train/setup.h"
#include "worker/train/step.h"

namespace worker {

/// How a rank's training ended, when it ended in an orderly way.
struct Outcome {
  spec::ExitCode code = spec::kExitDone;
  std::string reason;
};

/// The steps of a training, with what comes between them: evaluations, reports and saves.
///
/// [Note: leaving together] In each step every rank puts its loss and its stop request into one small all-gather, which
/// runs beside the last backward. So all ranks see the same requests at the same step boundary and leave there
/// together. They save first for kSave, and do not save for kNow, which wins.
class Loop {
 public:
  /// Both must outlive the object.
  Loop(Setup& setup, Resume& resume);

  /// Makes the steps that are left, and exports the model at the end. Collective.
  Outcome run();

 private:
  bool tell_made_steps(std::size_t keep);
  bool validates_now() const;
  void tell(agent::rank::StepReport& report, StepMeasures& measures);
  void say_tensors(const StepMeasures& measures) const;
  bool offer_best(const agent::rank::StepReport& report);
  std::vector<agent::rank::SeriesValue> evaluate();
  void save(bool must);
  void export_model();
  fsdp::CheckpointState checkpoint_state() const;
  std::string wants_stop();
  Outcome end();
  Outcome leave(spec::ExitCode code, std::string reason);

  Setup& run_;
  Resume& state_;
  Stepper stepper_;
  std::string stop_early_;  // why no further step is made; the same on all ranks
  bool said_tensors_ = false, said_graph_ = false;
};

}  // namespace worker
