#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "controller/common/clock.h"
#include "controller/executors/executor.h"
#include "slurm/batch_script.h"
#include "slurm/scheduler.h"

namespace executors::on_slurm {

/// Asks Slurm for its partitions and nodes. Runs two commands, each with its own time limit.
ClusterFacts ask_cluster(::slurm::Scheduler& scheduler);

struct SlurmOptions {
  /// The data folder, absolute, on a file system that every node sees.
  std::filesystem::path root;
  /// muster-agent, absolute, where every node sees it.
  std::filesystem::path agent_program;
  /// LD_LIBRARY_PATH that muster-agent starts with; see AgentProgram.
  std::string agent_libraries = {};
  /// Tells this controller's jobs from others': letters and digits.
  std::string store_name;
  /// Whose jobs are listed: the user musterd submits as.
  std::string user;
  /// Between listings; at rest five times as long. See PollPace.
  core::Millis poll_interval{1000};
  /// Between listings that cannot wait, for a few in a row.
  core::Millis urgent_interval{100};
};

/// The executor that runs attempts as Slurm jobs, one job (or one array element) each. The id of the attempt is in
/// --comment.
///
/// One squeue a poll tells of all attempts. muster-agent beside each rank tells the rest: see SlurmAttempt. While Slurm
/// can't be reached nothing is concluded and nothing is lost. trouble() says so, and the executor does what was to be
/// done when Slurm is back.
///
/// Threads: one asks Slurm and acts (Poller). The other passes facts on and lets time pass; facts come from it alone.
/// Scheduler and clock must outlive the executor, whose destructor shuts it down.
std::unique_ptr<Executor> make_slurm_executor(::slurm::Scheduler& scheduler, common::Clock& clock,
                                              SlurmOptions options);

}  // namespace executors::on_slurm
