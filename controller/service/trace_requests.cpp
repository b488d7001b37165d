#include "controller/service/trace_requests.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "agent/protocol/files.h"
#include "controller/core/core_text.h"
#include "controller/service/standing.h"
#include "spec/jobfile/job_keys.h"

namespace service {
namespace {

namespace v1 = muster::v1;
using common::Outcome;
using common::Refusal;

/// The last step of a training that has not told it yet.
constexpr core::Step kUnknownLast = std::numeric_limits<core::Step>::max();

std::string name_of(const core::Job& job) {
  return "job " + std::to_string(job.id);
}

/// The problem of a request that can never be taken; empty: there is none.
std::string problem_of(const v1::TraceRequest& request) {
  if (request.number() == 0 || request.number() > agent::protocol::kMostTraceNumber) {
    return "number " + std::to_string(request.number()) + ": want a random number from 1 to " +
           std::to_string(agent::protocol::kMostTraceNumber);
  }
  if (request.steps() > agent::protocol::kMostTraceSteps) {
    return "steps " + std::to_string(request.steps()) + ": at most " +
           std::to_string(agent::protocol::kMostTraceSteps) + " steps of one request";
  }
  if (request.first_step() < 0) {
    return "first_step " + std::to_string(request.first_step()) + ": want a step from 1, or 0 for the next one";
  }
  return "";
}

}  // namespace

Outcome<v1::TraceView> TraceRequests::ask(const v1::TraceRequest& request) {
  if (auto problem = problem_of(request); !problem.empty()) return Refusal::invalid(std::move(problem));
  const core::JobId id = request.job_id();
  try {
    const auto job = parts_.event_log.job(id);
    const auto spec = job == nullptr || job->removed_at ? nullptr : parts_.specs.get(id);
    if (spec == nullptr) return Refusal::no_job(id);
    if (const auto known = parts_.live_ranks.find_trace(id, request.number())) {
      return view(*job, known->first, known->second, *spec);
    }
    return take(request, *job, *spec);
  } catch (const std::exception& e) {
    return Refusal::unavailable(e.what());
  }
}

Outcome<v1::TraceView> TraceRequests::take(const v1::TraceRequest& request, const core::Job& job,
                                           const v1::JobSpec& spec) {
  const auto* attempt = job.current();
  if (job.is_command) {
    return Refusal::wrong_state(name_of(job) +
                                " runs a program of its own, whose steps muster cannot record; use the program's "
                                "profiler, such as torch.profiler");
  }
  using State = core::AttemptState;
  const bool runs = attempt != nullptr && (attempt->state == State::kStarting || attempt->state == State::kRunning);
  if (!runs) {
    const std::string remedy =
        core::is_ended(job.state)
            ? "submit it again (muster submit --like " + std::to_string(job.id) + ") with train.trace_step"
            : "ask again when it runs, or set train.trace_step in its job file";
    return Refusal::wrong_state(name_of(job) + " is " + status_word(job) + ", so no rank can record a step; " + remedy);
  }
  const core::AttemptKey key{job.id, attempt->number};
  // The steps of train.epochs are known to the ranks, which tell them.
  const core::Step planned = jobfile::whole_of(spec.recipe(), "train.steps");
  const core::Step last = planned > 0 ? planned : job.program.total_steps > 0 ? job.program.total_steps : kUnknownLast;
  const core::Step newest = newest_step(key, job.world_size);
  const core::Step first = request.first_step();
  if (first > 0 && (first <= newest + 1 || first > last)) {
    const auto next = newest + 2;
    return Refusal::invalid(
        "step " + std::to_string(first) + ": " + name_of(job) + " has done step " + std::to_string(newest) +
        (last == kUnknownLast ? "" : " of " + std::to_string(last)) +
        (last == kUnknownLast ? "; want a step from " + std::to_string(next) + ", or none"
         : next <= last ? "; want a step from " + std::to_string(next) + " to " + std::to_string(last) + ", or none"
                        : "; it ends before another step could be recorded"));
  }
  const auto user = user_or_unknown(request.user());
  const ranks::TraceWish wish{request.number(), first, std::max(request.steps(), 1U)};
  const auto answer = parts_.live_ranks.ask_trace(key, wish, user);
  if (answer.unable) {
    return Refusal::wrong_state("rank " + std::to_string(*answer.unable) + " of " + name_of(job) +
                                " cannot record steps on request: its muster-worker is older than this musterd; " +
                                "muster requeue " + std::to_string(job.id) + " starts the installed one");
  }
  if (answer.under_way) {
    const auto& other = *answer.under_way;
    const auto from = other.first > 0 ? other.first : other.wish.first;
    return Refusal::wrong_state(name_of(job) + " records " +
                                (from > 0 ? agent::protocol::traced_steps_text(from, other.wish.steps)
                                          : core::count_text(other.wish.steps, "step")) +
                                (other.user.empty() ? "" : " for " + other.user) +
                                " already; ask again when that is done");
  }
  if (!answer.taken) return Refusal::wrong_state(name_of(job) + " has changed meanwhile; ask again");
  spdlog::info("job {} attempt {}: {} asks its ranks to record {}", job.id, attempt->number, user,
               core::count_text(wish.steps, "step"));
  tell_(key);
  return view(job, attempt->number, *answer.taken, spec);
}

core::Step TraceRequests::newest_step(const core::AttemptKey& key, std::uint32_t ranks) const {
  core::Step newest = 0;
  for (core::RankNumber rank = 0; rank < ranks; ++rank) {
    if (const auto seen = parts_.live_ranks.view(key, rank)) newest = std::max(newest, seen->step);
  }
  return newest;
}

v1::TraceView TraceRequests::view(const core::Job& job, core::AttemptNumber number, const ranks::StepTrace& trace,
                                  const v1::JobSpec& spec) const {
  v1::TraceView out;
  out.set_job_id(job.id);
  out.set_attempt(number);
  out.set_number(trace.wish.number);
  out.set_first_step(trace.first > 0 ? trace.first : trace.wish.first);
  out.set_steps(trace.wish.steps);
  out.set_folder((jobs::checkpoint_folder(spec, job.id, parts_.data) / agent::protocol::kTraceFolder).string());
  for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank) {
    auto& told = *out.add_ranks();
    told.set_rank(static_cast<std::uint32_t>(rank));
    for (const auto step : trace.ranks[rank].steps_written) told.add_steps_written(step);
    told.set_problem(trace.ranks[rank].problem);
  }
  const bool is_recorded = number <= job.attempts.size();
  const bool attempt_ended =
      is_recorded ? job.attempts[number - 1].state == core::AttemptState::kEnded : core::is_ended(job.state);
  const bool over = trace.is_over();
  out.set_state(over || attempt_ended ? "over" : trace.first > 0 ? "recording" : "asked");
  if (over || !attempt_ended) return out;
  const auto why = is_recorded ? job.attempts[number - 1].reason : job.reason;
  out.set_problem("attempt " + std::to_string(number) + " has ended before its ranks had recorded all steps" +
                  (why.empty() ? "" : " (" + why + ")") +
                  (core::is_ended(job.state) ? "; complete files are in " + out.folder()
                                             : "; ask again when the next attempt trains"));
  return out;
}

}  // namespace service
