#pragma once

#include <string>
#include <vector>

#include "muster/v1/job.pb.h"

namespace jobfile {

/// A recipe's data and model that this machine does not have now, a sentence each. They need not be there before the
/// job starts, and a cluster may see other folders, so they are no reason to refuse the job.
std::vector<std::string> missing_inputs(const muster::v1::JobSpec& spec);

}  // namespace jobfile
