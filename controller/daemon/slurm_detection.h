#pragma once

#include <string>

#include "slurm/command.h"

namespace musterd {

/// Why jobs cannot go to Slurm, with a remedy. Empty: Slurm's commands are installed and a cluster is configured.
/// `wanted` is the value of --slurm: "auto", "yes" or "no". With "yes", sinfo is run to find out, since Slurm may get
/// its configuration from elsewhere.
std::string why_no_slurm(const std::string& wanted, slurm::CommandRunner& runner);

}  // namespace musterd
