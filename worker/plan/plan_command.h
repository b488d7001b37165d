#pragma once

#include <optional>
#include <string>

#include "fsdp/text/json.h"
#include "worker/plan/fit.h"
#include "worker/train/train_config.h"

namespace worker {

/// A run as it can be planned here.
struct PlannedRun {
  RunConfig config;
  std::string note;  ///< which keys were assumed, for people; empty: none
};

/// A plan must not need the weights. Where the config.json of model.pretrained cannot be read here, as on another
/// machine than the cluster's, the whole-number keys of [model] must be in the run file, and the other keys have their
/// defaults, which the note names. Then model.pretrained is empty. Throws base::UsageError naming the keys that are
/// missing, and keys that contradict each other.
PlannedRun assume_config(RunConfig config);

/// The report that `muster-worker --plan` prints: the plan of a rank, what it assumes (see assume_config()), the
/// estimates, and with a limit whether the run fits, why not and what would. A limit of 0 bytes is none, but still says
/// what the ranks compute on. Bytes are whole numbers. Throws as plan_rank() and assume_config().
fsdp::Json plan_report(const RunConfig& config, const agent::rank::RankEnvironment& environment, const Limit& limit);

/// Memory that this rank may use here: the memory of its GPU, or its part of the memory of this machine or cgroup.
/// Nothing where that is not known.
std::optional<Limit> limit_here(const agent::rank::RankEnvironment& environment);

/// Throws base::UsageError with misfit_text() where the run does not fit into `limit`, unless fsdp.check_memory is off.
/// A run that cannot be planned passes. Activations are planned by the operations of the CPU, so against the memory of
/// a GPU they do not count. Takes milliseconds a layer. Not collective; all ranks of equal nodes agree.
void check_memory(const RunConfig& config, const agent::rank::RankEnvironment& environment,
                  const std::optional<Limit>& limit);

}  // namespace worker
