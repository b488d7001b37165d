#pragma once

#include "muster/v1/job.pb.h"
#include "ranks/liveness.h"

namespace ranks {

LivenessRules liveness_rules(const muster::v1::JobSpec& spec);

}  // namespace ranks
