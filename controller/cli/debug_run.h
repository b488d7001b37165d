#pragma once

#include "muster/v1/job.pb.h"

namespace cli {

/// executor = "debug": this process becomes the job's one rank, in the foreground, without a controller; its exit code
/// is the program's. Only returns by a Failure. Checkpoints and metrics go into a new folder below the temporary one,
/// told on stderr, which stays. Neither the time limit nor requeue apply.
[[noreturn]] void run_in_foreground(const muster::v1::JobSpec& spec);

}  // namespace cli
