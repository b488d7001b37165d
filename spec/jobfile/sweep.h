#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/jobfile/spec.h"
#include "spec/jobfile/sweep_axis.h"

namespace jobfile {

class JobSource;
struct Override;

/// The jobs of a sweep, or its problems.
struct Sweep {
  std::vector<muster::v1::JobSpec> specs;  // each is complete and valid, and knows its settings
  std::vector<std::string> problems;       // lines for people; do not use the specs if there are any
  std::uint32_t parallel = 0;              // how many may run at once; 0: no limit
  std::vector<Finding> findings = {};      // the same problems for programs
};

/// Makes one job for each combination of the axes' values, at most kMostSweepJobs. The last axis varies fastest. The
/// axes of the job file's [sweep] come first; an axis of `axes` with the same key replaces one of them. Each job is
/// checked like a single job. Job 7 of "tune" is named "tune-0007".
///
/// If the spec names a checkpoint folder, each job gets a subfolder whose name holds its settings. So the same settings
/// find their checkpoints again. The folder may vary itself, but no two jobs may share one. The same holds for the
/// other paths that a training writes to: its export, its full state and its logs.
Sweep compose_sweep(const JobSource& source, const std::vector<Override>& overrides, std::vector<SweepAxis> axes,
                    FileChecks checks);

/// One job for each row of overrides, at most kMostSweepJobs. A row's keys are the settings of its job.
Sweep compose_rows(const JobSource& source, const std::vector<Override>& overrides,
                   const std::vector<std::vector<Override>>& rows, FileChecks checks);

}  // namespace jobfile
