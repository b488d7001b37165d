#pragma once

#include "agent/process/orphans.h"

namespace agent::process {

/// Starts a process that waits for the death of this one, then ends what the rank has left behind, and goes. Where
/// Slurm has no cgroups, nobody else ends a rank's children in sessions of their own when the agent is killed with its
/// process group. The next attempt may run on other nodes.
///
/// The process is a child of this one in a session of its own, holds no file open, and is ended by end_children(). Call
/// it while this process has one thread. A system that refuses gets no such process.
void keep_rank(const RankMark& mark);

}  // namespace agent::process
