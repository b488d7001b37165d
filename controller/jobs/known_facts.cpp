#include <algorithm>
#include <string>
#include <variant>

#include "controller/jobs/event_log.h"

namespace jobs {
namespace {

// A rank may have told before that the attempt has started, but a rank knows only its own node. Tasks know the node of
// each rank. The scheduler knows only which nodes the attempt has.
bool tells_nothing(const core::Attempt& attempt, const core::AttemptStarted& started) {
  if (attempt.state == core::AttemptState::kQueued) return false;
  if (attempt.state == core::AttemptState::kEnded) return true;
  for (std::size_t r = 0; r < attempt.ranks.size() && r < started.nodes.size(); ++r) {
    if (started.nodes[r].empty()) continue;
    if (attempt.ranks[r].node.empty()) return false;
    if (started.seen_there && attempt.ranks[r].node != started.nodes[r]) return false;
  }
  return true;
}

/// The subject of a fact besides its attempt: a rank, a node, a step or another job. Two facts of one kind with two
/// subjects are two facts. What may become known better, or be answered anew, is a subject, too: where the ranks are,
/// why an attempt stops, how Slurm answered a time limit.
std::string subject_of(const core::EventBody& body) {
  return std::visit(
      [](const auto& e) -> std::string {
        if constexpr (requires { e.rank; }) return std::to_string(e.rank);
        if constexpr (requires { e.node; }) return e.node;
        if constexpr (requires { e.job; }) return std::to_string(e.job);
        if constexpr (requires { e.step; }) return std::to_string(e.step);
        if constexpr (requires { e.seen_there; }) {
          std::string places = e.seen_there ? "seen" : "planned";
          for (const auto& node : e.nodes) places += "\n" + node;
          return places;
        }
        if constexpr (requires { e.refusal; }) return std::to_string(e.time_limit.count()) + e.refusal;
        if constexpr (requires { e.save; }) return std::string(core::to_string(e.cause));
        return {};
      },
      body);
}

}  // namespace

std::optional<FactKey> fact_key(core::JobId job, const core::EventBody& body) {
  if (std::holds_alternative<core::AttemptSuspected>(body) || std::holds_alternative<core::SuspicionOver>(body)) {
    return std::nullopt;
  }
  return FactKey{job, body.index(), core::attempt_of(body), subject_of(body)};
}

bool is_known_fact(const core::Job& job, const core::EventBody& body) {
  if (job.removed_at) return true;  // the fact changes nothing any more
  const auto number = core::attempt_of(body);
  if (number == 0 || number > job.attempts.size()) return false;
  const auto& attempt = job.attempts[number - 1];
  if (const auto* exited = std::get_if<core::RankExited>(&body)) {
    return exited->rank < attempt.ranks.size() && attempt.ranks[exited->rank].state == core::RankState::kExited;
  }
  if (std::holds_alternative<core::AttemptGone>(body)) return attempt.state == core::AttemptState::kEnded;
  if (const auto* started = std::get_if<core::AttemptStarted>(&body)) return tells_nothing(attempt, *started);
  if (const auto* stopping = std::get_if<core::AttemptStopping>(&body)) {
    return attempt.state == core::AttemptState::kEnded || attempt.cause == stopping->cause;
  }
  const bool handed_over = attempt.started_at.has_value() || attempt.queued_at.has_value();
  return std::holds_alternative<core::AttemptLaunched>(body) && handed_over;
}

bool is_early_fact(const core::Job& job, const core::EventBody& body) {
  if (core::is_ended(job.state)) return false;
  if (std::holds_alternative<core::AttemptLaunched>(body)) return false;
  if (std::holds_alternative<core::AttemptLaunchFailed>(body)) return false;
  return core::attempt_of(body) > job.attempts.size();
}

}  // namespace jobs
