#include "executors/executor.h"

#include "core/text.h"

namespace runtime {

std::string stop_word(core::Cause cause) {
  switch (cause) {
    case core::Cause::kPreempted:
      return "preempted";
    case core::Cause::kTimedOut:
      return "time_limit";
    case core::Cause::kRequeued:
      return "requeued";
    case core::Cause::kCancelled:
      return "cancelled";
    // One of the gang is lost, whatever became of it.
    case core::Cause::kFailed:
    case core::Cause::kOutOfMemory:
    case core::Cause::kRankSilent:
    case core::Cause::kRankHung:
    case core::Cause::kNodeFailed:
      return "peer_failed";
    // Another attempt is in its place, or will be.
    case core::Cause::kNone:
    case core::Cause::kCompleted:
    case core::Cause::kControllerLost:
      break;
  }
  return "superseded";
}

std::string unreachable_text(const Trouble& trouble) {
  return "unreachable since " + core::utc_text(trouble.since) + ": " + trouble.why;
}

std::string trouble_text(const Trouble& trouble) {
  return "scheduler " + unreachable_text(trouble);
}

}  // namespace runtime
