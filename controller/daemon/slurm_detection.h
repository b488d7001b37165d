#pragma once

#include <string>

#include "slurm/command.h"

namespace musterd {

/// Why jobs can't go to Slurm, with the remedy; empty: its commands are there, and a cluster is configured. `wanted` is
/// --slurm: "auto", "yes" or "no". Where somebody insists ("yes"), Slurm's own commands are asked: they may get their
/// configuration from elsewhere.
std::string why_no_slurm(const std::string& wanted, slurm::CommandRunner& runner);

}  // namespace musterd
