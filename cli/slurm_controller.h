#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/command.h"
#include "controller/common/ready_file.h"
#include "controller/in_slurm/own_job.h"
#include "slurm/slurm_client.h"

namespace cli {

/// The Slurm jobs in which the musterd of one data folder runs, see [Note: musterd inside Slurm jobs]. Slurm's commands
/// are found in PATH.
class SlurmController {
 public:
  /// Asks nothing and writes nothing.
  explicit SlurmController(std::filesystem::path data_folder);

  /// True from `muster up --in-slurm` until `muster down`.
  bool is_wanted() const;
  /// Throws a Failure with Slurm's words if Slurm does not answer.
  in_slurm::Standing look();
  /// Writes the script and submits it, unless a job is there already. `command`: musterd with its arguments. `asked`:
  /// options of sbatch by their long names. Throws a Failure with Slurm's words, and leaves no script then.
  void start(const std::vector<std::string>& command, slurm::Options asked);
  /// Returns once a musterd is ready in one of the jobs. Tells on stderr why a job waits. Throws a Failure: kTimedOut
  /// if the job waits for longer than a person would, kUnreachable with musterd's words if it does not start.
  common::ReadyFile wait_for_ready();
  /// Ends all jobs, and returns when they have ended. Throws a Failure; what it has not done, the next call does.
  void stop();
  /// Forgets that musterd is to run in Slurm.
  void forget() const;

  /// Where and until when musterd runs, and which job goes on after it: "Slurm job 12 on node1 until ...".
  static std::string text_of(const in_slurm::Standing& standing);

 private:
  const std::filesystem::path data_folder_;
  base::ProcessRunner runner_;
  slurm::Client slurm_;
};

}  // namespace cli
