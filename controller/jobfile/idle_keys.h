#pragma once

#include <string>
#include <vector>

#include "muster/v1/job.pb.h"

namespace jobfile {

/// The keys that have no effect on a command, a sentence each. A key is named if it differs from its default and only
/// muster-worker, or only a program that reports its steps, can obey it. `reports`: the program has reported steps.
/// Of any job: the keys that have an effect on sweeps alone.
std::vector<std::string> idle_keys(const muster::v1::JobSpec& spec, bool reports);

}  // namespace jobfile
