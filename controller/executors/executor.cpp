#include "controller/executors/executor.h"

#include "controller/core/core_text.h"

namespace executors {
namespace {

std::string telling(const std::string& check, std::string_view whose) {
  return "trap 'muster_code=$?; if [ $muster_code != 0 ]; then echo \"" + std::string(kUnfitMark) +
         "${SLURMD_NODENAME:-$(uname -n)}" + std::string(whose) + " with exit code $muster_code\" >&2; fi' EXIT\n" +
         check;
}

}  // namespace

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

bool has_ended(const TaskReport& report) {
  return report.process == TaskReport::Process::kExited || report.process == TaskReport::Process::kStepLost;
}

std::string unreachable_text(const Trouble& trouble) {
  return "unreachable since " + core::utc_text(trouble.since) + ": " + trouble.why;
}

std::string trouble_text(const Trouble& trouble) {
  return "scheduler " + unreachable_text(trouble);
}

std::vector<std::string> kept_off(core::JobId job, const LostNodes& lost) {
  std::vector<std::string> nodes;
  for (const auto& [node, only] : lost) {
    const bool concerns = only == 0 || only == job;
    if (concerns && std::ranges::find(nodes, node) == nodes.end()) nodes.push_back(node);
  }
  return nodes;
}

std::string telling_check(const std::string& check) {
  return telling(check, {});
}

// The check that goes before it may be the partition's, with a trap of its own: from here on this one counts.
std::string own_check(const std::string& check) {
  return check.empty() ? std::string() : telling(check, kOwnCheckMark);
}

}  // namespace executors
