#pragma once

#include "muster/v1/job.pb.h"

namespace cli {

/// executor = "debug": runs all of the job's ranks here, in the foreground, without a controller, and returns the exit
/// code for muster: that of the first rank that failed, 128 + the signal for one that a signal ended. Rank 0 has this
/// terminal; what the others write follows on stderr, each line behind its rank. When one fails, the others are asked
/// to leave, and killed after resources.stop_grace. Ctrl-C is the ranks' own to handle. The ranks find what those of an
/// attempt find; their attempt's folder lies below the temporary one and is removed at the end. Neither the time limit
/// nor requeue apply. Throws Failure where nothing could be started.
int run_in_foreground(const muster::v1::JobSpec& spec);

}  // namespace cli
