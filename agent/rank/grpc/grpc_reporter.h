#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "agent/rank/environment.h"
#include "agent/rank/meeting.h"
#include "agent/rank/reporter.h"

namespace agent::rank {

/// Waits of the gRPC reporter; the defaults are for everybody but tests.
struct GrpcReporterOptions {
  /// Until the ranks must have met; and how long to wait for a controller that does not answer meanwhile.
  std::chrono::milliseconds rendezvous_limit = MeetingPatience::kLimit;
  std::chrono::milliseconds rendezvous_away_limit = MeetingPatience::kAwayLimit;
  /// Between being told to stop and ending the process, when training does not leave by itself: a rank that hangs in a
  /// collective with dead peers must not keep its node.
  std::chrono::milliseconds fenced_grace{1'000};
  /// The reports are those of another process. A stop is no matter of this one: what the other has reported is sent all
  /// the same.
  bool for_another = false;
  /// The rank's process; 0: this one. Of another process the heartbeats tell no memory.
  std::int64_t pid = 0;
  /// After a call that failed; doubled at each further one, up to the most. A success begins anew.
  std::chrono::milliseconds backoff_first{100};
  std::chrono::milliseconds backoff_most{2'000};
  /// How long a rank that leaves offers what it has not been able to send.
  std::chrono::milliseconds leaving_limit{2'000};
  /// And, with exit code 0 (nobody waits to kill it), how much longer while the controller answers but its store takes
  /// nothing, and the attempt's folder has no room either.
  std::chrono::milliseconds offering_limit{30'000};
  /// How long a rank that leaves waits for the disk to take what it has not been able to send, and to let go of what is
  /// no longer needed. With exit code 0 it is offering_limit, if the controller has not heard all.
  std::chrono::milliseconds file_limit{1'000};
  /// How long keep() waits for the disk.
  std::chrono::milliseconds keep_limit{1'000};
};

/// Reports to the controller at `environment.controller` over RankService.
///
/// Heartbeats go over one stream. A stream that breaks is opened anew after a wait, and a controller that knows no
/// stream gets calls. One thread of its own sends at the interval the controller hands out; training never waits for
/// it, and it never waits for a file: another thread keeps what was not sent and writes to stderr (see
/// grpc_unsent_file.h). While the controller can't be reached, or does not know this job, training goes on and the
/// newest 100,000 steps, or 112 MiB of them, are kept and sent afterwards, oldest first, until acknowledged; should the
/// rank end before, they are in the attempt's folder (see grpc_unsent_file.h). Only an explicit "stop" stops the rank:
/// stop_requested() becomes kNow, and the process ends with kExitFenced unless it leaves within the grace. `leaving`
/// takes at most the limits of the options. The destructor waits for the last work on files as long as file_limit and
/// offering_limit say. All signals are blocked in the threads it starts, so handlers run in the caller's.
///
/// Throws std::invalid_argument naming the variable when the environment has no controller, job id or attempt. That
/// the controller can't be reached is no error.
std::unique_ptr<Reporter> make_grpc_reporter(const RankEnvironment& environment, GrpcReporterOptions options = {});

}  // namespace agent::rank
