#pragma once

#include <string>
#include <vector>

#include "runtime/executor.h"
#include "slurm/batch_script.h"

namespace runtime::on_slurm {

/// Slurm's whole minutes: rounded up, at least one; 0 stays 0 (no limit).
std::chrono::minutes slurm_minutes(core::Millis limit);

/// The script of one attempt. Pure. Everything of the user's that could be hostile (arguments, environment, folders)
/// travels in the attempt's launch.json, not in the script.
::slurm::BatchScript plan_script(const LaunchRequest& request, const std::string& task_program,
                                 const std::string& comment);

/// The same for several attempts of one sweep as an array; `set_file` tells each element its attempt. The requests must
/// ask Slurm for the same things: same_shape().
::slurm::BatchScript plan_array(const std::vector<LaunchRequest>& requests, const std::string& task_program,
                                const std::string& comment, const std::string& set_file);
bool same_shape(const LaunchRequest& a, const LaunchRequest& b);

}  // namespace runtime::on_slurm
