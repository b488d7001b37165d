#pragma once

#include <string>
#include <vector>

#include "cli/client.h"

namespace cli {

/// Whether the newest attempt was given to Slurm and failed before any of its ranks had a process: in the job file's
/// own lines, the health check, or srun.
bool failed_before_ranks(const muster::v1::Job& job);

/// The last lines of Slurm's log of such an attempt, as a terminal may show them; empty of any other, and where they
/// can't be read.
std::vector<std::string> slurm_words(Client& client, const muster::v1::Job& job);

/// Where Slurm's log of the newest attempt is to be read: its path, or the command where only that will do; empty: it
/// has none.
std::string slurm_log_place(const muster::v1::Job& job);

}  // namespace cli
