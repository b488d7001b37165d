#include "controller/service/standing.h"

#include <cctype>

#include "controller/core/apply.h"
#include "controller/core/core_text.h"

namespace service {
namespace {

namespace v1 = muster::v1;

constexpr const char* kNothingIsLost =
    "Nothing is lost: what runs goes on, and muster asks again by itself. Is slurmctld running?";

/// Its newest attempt was refused by what should have started it.
bool never_launched(const core::Job& job) {
  const auto* attempt = job.current();
  return attempt == nullptr || (!attempt->started_at && attempt->handle.empty());
}

std::string after_failure(const core::Job& job) {
  const std::string id = std::to_string(job.id);
  if (never_launched(job)) {
    return "Correct in the job file what the reason names, and submit it again; nothing of it was started, so there is "
           "no log";
  }
  // A recipe's program is muster's own: what a person can correct stands in the job file.
  const std::string again =
      job.is_command
          ? ". Correct the program, then: muster requeue " + id + ". Or correct the job file and submit it again"
          : ", then correct the job file and submit it again, or: muster requeue " + id;
  const auto& last = job.attempts.back();
  if (!last.culprit && last.queued_at) {
    return "No rank is to blame: look at what Slurm and the lines before the ranks wrote (muster logs " + id +
           " --slurm)" + again;
  }
  return "Look at the end of its log (muster logs " + id + " --tail 50; muster show " + id + " names the files)" +
         again;
}

/// It neither runs nor has ended. What keeps muster from starting it has the word, else the scheduler.
void explain_wait(const StandingFacts& facts, Standing& out) {
  const auto& job = facts.job;
  const bool queued = job.state == core::JobState::kQueued;
  if (facts.wait && !facts.wait->why.empty()) {
    out.reason = facts.wait->why;
    out.action = facts.wait->action;
    if (facts.wait->until && *facts.wait->until > facts.now) out.expected_start = facts.wait->until;
  } else if (facts.trouble && (queued || facts.queue)) {
    out.reason = executors::trouble_text(*facts.trouble);
    out.action = kNothingIsLost;
  } else if (facts.queue) {
    if (!facts.queue->sentence.empty()) out.reason = facts.queue->sentence;
    out.action = facts.queue->action;
  } else if (job.state == core::JobState::kWaiting) {
    out.action = common::kStartsByItself;
  }
}

/// The steps that a person can take about a suspicion, by what is suspected.
std::string after_suspicion(const StandingFacts& facts) {
  const auto& job = facts.job;
  const std::string id = std::to_string(job.id);
  if (job.current()->suspicion == core::Suspicion::kUnheard) {
    return "Is the network up between musterd and the nodes? The ranks go on without musterd, and send what they have "
           "to tell later. liveness.lost_after sets how long they may be unheard";
  }
  const std::string look =
      "See where each rank stands: muster stacks " + id + ". Look at its log: muster logs " + id + " --tail 50. ";
  // The user's word holds in each section.
  if (facts.hung_after.count() > 0) {
    return look + "If the pause is meant, set a longer liveness.hung_after than " +
           core::duration_text(facts.hung_after);
  }
  return look + (job.is_command ? "If the pause is meant, let the program name it as a section, or set "
                                  "liveness.hung_after to more than it takes"
                                : "If the pause is meant, set liveness.hung_after to more than it takes");
}

/// Ranks that have begun are heard within a few seconds.
constexpr core::Millis kUnheard{20'000}, kUnheardAtBadAddress{3'000};

/// Ranks that run and cannot find musterd look like ranks that train in silence.
void explain_unheard(const StandingFacts& facts, Standing& out) {
  const auto limit = facts.address_problem.empty() ? kUnheard : kUnheardAtBadAddress;
  if (facts.queue->unheard_for.value_or(core::Millis(0)) < limit || facts.musterd_at.empty()) return;
  out.reason += "; none of its ranks has been heard in " + core::duration_text(*facts.queue->unheard_for);
  if (!facts.address_problem.empty()) {
    out.action = facts.address_problem;
    out.action[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(out.action[0])));
    return;
  }
  out.action = "Ranks look for musterd at " + facts.musterd_at +
               ". Does each node know that name, and reach that port? If the nodes know this machine by another one, "
               "start musterd with --advertise HOST:PORT";
}

/// Explains a job that runs: whether its scheduler has stopped it, and whether that scheduler can be asked at all.
void explain_run(const StandingFacts& facts, Standing& out) {
  if (facts.queue && facts.queue->suspended_since) {
    out.reason += "; suspended in Slurm since " + core::utc_text(*facts.queue->suspended_since);
    out.action = "Its time limit stands still meanwhile. Let it go on: scontrol resume " + facts.queue->scheduler_job;
  }
  // Local processes have no scheduler to lose.
  const auto* attempt = facts.job.current();
  if (attempt != nullptr && attempt->suspicion) {
    out.action = after_suspicion(facts);
    // Who was never heard may look for musterd at a wrong place.
    if (*attempt->suspicion == core::Suspicion::kUnheard && facts.queue) explain_unheard(facts, out);
  } else if (facts.queue && !facts.queue->suspended_since) {
    explain_unheard(facts, out);
  }
  if (facts.trouble && attempt != nullptr && attempt->queued_at) {
    out.reason += "; " + executors::trouble_text(*facts.trouble);
    out.action = kNothingIsLost;
  }
}

}  // namespace

bool is_foreseen(core::Time start, core::Time now) {
  constexpr core::Millis kFarthest = std::chrono::hours(24 * 60);
  return start - now < kFarthest;
}

std::string status_word(const core::Job& job) {
  std::string state(core::to_string(job.state));
  if (job.current() != nullptr && job.current()->suspicion) state += ", suspected";
  if (!job.held || core::is_ended(job.state)) return state;
  // That it waits for a person says more than what it would wait for otherwise.
  return is_idle(job) || job.state == core::JobState::kQueued ? "held" : state + ", held";
}

Standing standing_of(const StandingFacts& facts) {
  const auto& job = facts.job;
  Standing out{status_word(job), job.reason, {}, {}, {}};
  if (core::is_ended(job.state)) {
    if (job.state == core::JobState::kFailed) out.action = after_failure(job);
    return out;
  }
  const bool queued = job.state == core::JobState::kQueued;
  if (!queued && !is_idle(job)) {
    explain_run(facts, out);
    if (!job.held) return out;
    out.reason += "; held by " + job.held_by + ", no further attempt starts";
    out.action = "Release it when a next attempt may start: muster release " + std::to_string(job.id);
    return out;
  }
  if (queued && facts.queue) {
    out.scheduler_reason = facts.queue->reason;
    out.expected_start = facts.queue->expected_start;
  }
  explain_wait(facts, out);
  return out;
}

std::string refusal_of(const core::Job& job, std::string_view request) {
  if (request == "cancel") return core::refusal_text(job, core::CancelRequested{});
  if (request == "requeue") return core::refusal_text(job, core::RequeueRequested{});
  if (request == "hold") return job.held ? "it is held already" : core::refusal_text(job, core::HoldRequested{});
  if (request == "release") return core::refusal_text(job, core::ReleaseRequested{});
  if (request == "limit") return core::refusal_text(job, core::TimeLimitChanged{});
  if (request == "rm") return core::refusal_text(job, core::JobRemoved{});
  return "";
}

std::vector<core::JobState> states_that_allow(std::string_view request) {
  std::vector<core::JobState> states;
  for (const auto state : core::kAllJobStates) {
    core::Job job;
    job.state = state;
    job.held = request == "release";
    if (refusal_of(job, request).empty()) states.push_back(state);
  }
  return states;
}

v1::Controls controls_of(const core::Job& job) {
  v1::Controls out;
  out.set_cancel_refusal(refusal_of(job, "cancel"));
  out.set_requeue_refusal(refusal_of(job, "requeue"));
  out.set_hold_refusal(refusal_of(job, "hold"));
  out.set_release_refusal(refusal_of(job, "release"));
  out.set_time_limit_refusal(refusal_of(job, "limit"));
  out.set_remove_refusal(refusal_of(job, "rm"));
  if (out.cancel_refusal().empty()) out.set_cancel_effect(core::effect_of_cancel(job));
  if (out.requeue_refusal().empty()) out.set_requeue_effect(core::effect_of_requeue(job));
  return out;
}

}  // namespace service
