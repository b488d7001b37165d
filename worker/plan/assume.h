#pragma once

#include <string>

#include "worker/train/config.h"

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

}  // namespace worker
