#pragma once

#include <string>
#include <vector>

#include "tests/slurm_cluster/cluster.h"

namespace slurm_cluster {

/// Why jobs can't be held to their memory here (Options::memory_limits); empty: they can.
std::string no_memory_limits();

/// Submits `script` (the body of a bash script) and returns the job's id. Fails the test if sbatch refuses.
std::string submit(const Cluster& cluster, const std::vector<std::string>& options, const std::string& script);

/// One field of `squeue -t all -O` for a job, blanks trimmed; empty if Slurm does not know the job.
std::string field(const Cluster& cluster, const std::string& job, const std::string& name);

/// Polls until that field has that value; false after the limit.
bool becomes(const Cluster& cluster, const std::string& job, const std::string& name, const std::string& value,
             std::chrono::milliseconds limit = 20s);

/// A time as squeue writes it, or muster, in whole seconds; only differences mean something.
std::chrono::seconds time_of(const std::string& text);

/// Pids of all processes, zombies apart, whose command line or environment names the folder.
std::vector<pid_t> processes_of(const std::filesystem::path& folder);
/// Those of them that run this program, by the name that the kernel has for it.
std::vector<pid_t> processes_of(const std::filesystem::path& folder, const std::string& program);

}  // namespace slurm_cluster
