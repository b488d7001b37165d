#pragma once

#include <string>
#include <vector>

#include "controller/executors/executor.h"
#include "slurm/batch_script.h"

namespace executors::on_slurm {

/// A limit in Slurm's whole minutes: rounded up, at least one. 0 stays 0 (no limit).
std::chrono::minutes slurm_minutes(core::Millis limit);

/// muster-agent, and the LD_LIBRARY_PATH it starts with. [Note: libraries of the job's environment]
///
/// The libraries of a job's environment are for its ranks. An old conda's libstdc++.so.6 would keep muster-agent from
/// starting. So a shell starts muster-agent with the libraries that musterd itself was started with, and hands it the
/// job's LD_LIBRARY_PATH and LD_PRELOAD under other names. muster-agent gives them back to its rank. The shell runs on
/// the rank's node, so it sees what setup lines, srun or a task prolog have changed.
struct AgentProgram {
  std::string path;            // absolute
  std::string libraries = {};  // empty: none
};

/// The script of one attempt. Pure. Arguments, environment and folders of the user could be hostile. They travel in the
/// attempt's launch.json, not in the script.
::slurm::BatchScript plan_script(const LaunchRequest& request, const AgentProgram& agent, const std::string& comment);

/// The script of several attempts of one sweep as an array. `set_file` tells each element its attempt. The requests
/// must ask Slurm for the same things: see same_shape().
::slurm::BatchScript plan_array(const std::vector<LaunchRequest>& requests, const AgentProgram& agent,
                                const std::string& comment, const std::string& set_file);
bool same_shape(const LaunchRequest& a, const LaunchRequest& b);

}  // namespace executors::on_slurm
