#pragma once

#include "jobfile/job_file.h"

namespace jobfile {

/// The jobs of a sweep, or what is wrong.
struct Sweep {
  std::vector<muster::v1::JobSpec> specs;  // each complete and valid, with its settings
  std::vector<std::string> problems;       // lines for people; then no specs count
  std::uint32_t parallel = 0;              // at most so many at once; 0: no limit
};

/// One job for each combination of the axes' values, at most kMostSweepJobs; the last axis varies fastest. Those of the
/// job file's [sweep] come first, and `axes` replaces them key by key. Each job is checked like a job file of its own.
/// Job 7 of "tune" is "tune-0007". A checkpoint folder gets a subfolder for each job, named by what varies, so that the
/// same settings find their checkpoints again; it may vary itself, but no two jobs may share one.
Sweep compose_sweep(const JobSource& source, const std::vector<Override>& overrides, std::vector<SweepAxis> axes,
                    FileChecks checks);

}  // namespace jobfile
