#pragma once

#include <map>
#include <string>

#include "core/types.h"
#include "slurm/scheduler.h"

namespace executors::on_slurm {

/// Nodes that Slurm calls down, each with the reason that Slurm gives.
using DownNodes = std::map<std::string, std::string>;

/// What one poll says of one attempt.
struct Observation {
  const ::slurm::ListedJob* job = nullptr;  // nullptr: the listing lacks the job
  const DownNodes& down;
  core::Millis asked_at{0};  // squeue was called then
  core::Millis now{0};
  core::Time slurm_now{};  // the same moment by slurmctld's clock
};

}  // namespace executors::on_slurm
