#pragma once

#include "muster/v1/job.pb.h"

namespace cli {

/// Runs a job with executor = "debug": all ranks run here, in the foreground, without a controller. Returns the exit
/// code for muster: that of the first rank that failed, or 128 + the signal if a signal ended it.
///
/// Rank 0 has this terminal. The output of the other ranks goes to stderr, and each line begins with its rank. When a
/// rank fails, the others are asked to leave, and killed after resources.stop_grace. Ctrl-C goes to the ranks. The
/// ranks get the same environment and files as in an attempt. The attempt's folder is temporary and is removed at the
/// end. The time limit and requeue do not apply. Throws a Failure if a rank could not be started.
int run_in_foreground(const muster::v1::JobSpec& spec);

}  // namespace cli
