#pragma once

#include <cstdint>
#include <string>

#include "agent/rank/reporter.h"
#include "fsdp/text/json.h"

namespace worker {

/// What watches a training from step to step. A hook makes no collective calls, and changes no weight.
class Hook {
 public:
  virtual ~Hook() = default;

  /// The training begins or goes on after `step` finished steps.
  virtual void began(std::int64_t /*step*/) {}
  /// The numbers of a step are known. `evaluated`: those of an evaluation after it are among them. On GPUs a step's
  /// numbers come a step late.
  virtual void step(const agent::rank::StepReport& report, bool evaluated) = 0;
  /// Why the training should end before its last step; empty: it should not. Rank 0's answer counts, after each
  /// evaluation and at the start.
  virtual std::string wants_stop() const { return {}; }

  /// Writes into a checkpoint's manifest what load() takes back.
  virtual void save(fsdp::Json& /*extra*/) const {}
  virtual void load(const fsdp::Json& /*extra*/) {}
};

}  // namespace worker
