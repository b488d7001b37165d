#pragma once

#include <string>
#include <vector>

#include "muster/v1/job.pb.h"

namespace jobfile {

/// What a job file of a program of one's own asks for in vain, a sentence each: keys that differ from their defaults
/// and that only muster-worker, or a program that has told of its steps (`reports`), can heed.
std::vector<std::string> idle_keys(const muster::v1::JobSpec& spec, bool reports);

}  // namespace jobfile
