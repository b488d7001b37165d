#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "controller/common/changes.h"
#include "controller/common/clock.h"
#include "controller/core/job.h"
#include "controller/executors/executor.h"
#include "muster/v1/job.pb.h"

namespace service {

/// The standing of a job, as people are told it: its state's word, why it is in that state, and what they can do. The
/// one answer behind `list`, `show`, `why`, their JSON and the dashboard: none of them explains anything itself.
struct Standing {
  std::string status;            // "held", "running, held"
  std::string reason;            // one sentence
  std::string action;            // empty: nothing
  std::string scheduler_reason;  // the scheduler's own word; empty: none
  std::optional<core::Time> expected_start;
};

/// The facts about the job that the parts of the controller know. Each part is asked once, and may know nothing.
struct StandingFacts {
  const core::Job& job;
  core::Time now{};
  std::optional<executors::QueueWord> queue = std::nullopt;  // of the executor
  std::optional<executors::Trouble> trouble = std::nullopt;  // the scheduler can't be asked
  std::optional<common::Wait> wait = std::nullopt;           // why it may not start now
  std::string musterd_at = {};                               // where ranks look for musterd; empty: not known
  std::string address_problem = {};  // what is wrong with that address; empty: nothing is known to be
  core::Millis hung_after{0};        // of the job file; 0: learned
};

Standing standing_of(const StandingFacts& facts);

/// True if a start that the scheduler names means anything: it takes a job without a time limit for one of a year, so
/// what comes after such a job would start a year after that one did.
bool is_foreseen(core::Time start, core::Time now);

/// "held", "running, held", else the state.
std::string status_word(const core::Job& job);

/// `out`: a Job or a WhyResponse.
template <typename Message>
void fill_standing(const Standing& standing, Message& out) {
  out.set_status(standing.status);
  out.set_reason(standing.reason);
  out.set_action(standing.action);
  out.set_scheduler_reason(standing.scheduler_reason);
  out.set_expected_start(common::time_text(standing.expected_start));
}

/// The requests that may be made about the job: refusals and effects are core's.
muster::v1::Controls controls_of(const core::Job& job);

/// Why the job refuses this request ("requeue"); empty: the job does not refuse it, or there is no such request.
std::string refusal_of(const core::Job& job, std::string_view request);
/// The states in which a job allows this request.
std::vector<core::JobState> states_that_allow(std::string_view request);

}  // namespace service
