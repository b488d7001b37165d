#pragma once

#include <string>
#include <vector>

#include "muster/v1/job.pb.h"

namespace cli {

/// Gives the jobs of a sweep the settings that people see, in place of the keys that vary. `file`: JSON, an array with
/// one object for each job, in the order of the jobs; a name's value is a text, a number, true or false. The jobs
/// themselves stay as they are. Throws a Failure that names the file and the place in it.
void take_settings(const std::string& file, std::vector<muster::v1::JobSpec>& specs);

}  // namespace cli
