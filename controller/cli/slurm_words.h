#pragma once

#include <string>
#include <vector>

#include "cli/client.h"

namespace cli {

/// True if the newest attempt ran on Slurm and failed before any rank had a process: in the job file's setup lines, in
/// the health check, or in srun.
bool failed_before_ranks(const muster::v1::Job& job);

/// The last lines of Slurm's log of such an attempt, safe for a terminal; empty: another attempt, or the log cannot be
/// read.
std::vector<std::string> slurm_words(Client& client, const muster::v1::Job& job);

/// How to read Slurm's log of the newest attempt: its path, or a command if the path is not known; empty: there is no
/// such log.
std::string slurm_log_place(const muster::v1::Job& job);

}  // namespace cli
