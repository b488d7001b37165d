#include "service/job_pages.h"

#include <algorithm>
#include <stdexcept>

#include "core/apply.h"
#include "jobfile/spec.h"
#include "service/requests.h"
#include "service/views.h"

namespace service {
namespace {

constexpr std::uint32_t kListDefault = 100;
/// The most pages of rows that one list reads.
constexpr int kMostListPages = 20;

}  // namespace

Standing JobPages::standing(const core::Job& job) {
  StandingFacts facts{job, parts_.clock.wall()};
  if (core::is_ended(job.state)) return standing_of(facts);
  const auto* attempt = job.current();
  const bool between = attempt == nullptr || attempt->state == core::AttemptState::kEnded;
  const auto number = static_cast<core::AttemptNumber>(job.attempts.size() + (between ? 1 : 0));
  facts.trouble = parts_.executor.trouble();
  facts.queue = parts_.executor.queue_word({job.id, number});
  if (auto& word = facts.queue; word && word->expected_start && !is_foreseen(*word->expected_start, facts.now)) {
    word->expected_start.reset();
    if (!word->sentence.empty())
      word->sentence += " When it starts can't be told: a job without a time limit is first.";
  }
  facts.wait = parts_.admission.why_not(job, facts.now);
  if (!facts.wait && facts.queue) facts.wait = parts_.partitions.why_never(job, facts.queue->reason);
  return standing_of(facts);
}

base::Outcome<muster::v1::WhyResponse> JobPages::why(core::JobId id) {
  try {
    const auto job = parts_.event_log.job(id);
    if (job == nullptr) return refuse(base::Refusal::Kind::kNotFound, "there is no job " + std::to_string(id));
    if (job->removed_at) return refuse(base::Refusal::Kind::kNotFound, core::removed_text(*job));
    muster::v1::WhyResponse out;
    out.set_job_id(id);
    out.set_state(std::string(core::to_string(job->state)));
    fill_standing(standing(*job), out);
    if (const auto spec = parts_.specs.get(id)) {
      for (auto& note : jobfile::idle_keys(*spec, job->reports())) out.add_notes(std::move(note));
    }
    return out;
  } catch (const std::exception& e) {
    return refuse(base::Refusal::Kind::kUnavailable, e.what());
  }
}

muster::v1::ListResponse JobPages::list(const muster::v1::ListRequest& request) {
  store::ListFilter filter;
  for (const auto state : core::kAllJobStates) {
    for (const auto& wanted : request.states()) {
      if (wanted == core::to_string(state)) filter.states.push_back(state);
    }
  }
  muster::v1::ListResponse response;
  if (request.states_size() > 0 && filter.states.empty()) return response;
  if (!request.may().empty()) {
    const auto allowed = states_that_allow(request.may());
    if (filter.states.empty()) filter.states = allowed;
    std::erase_if(filter.states, [&](auto state) { return std::ranges::find(allowed, state) == allowed.end(); });
    if (filter.states.empty()) return response;
  }
  filter.limit = std::min(request.limit() == 0 ? kListDefault : request.limit(), kListMost);
  filter.before = request.before_id();
  filter.sweep = request.sweep();
  filter.ids.assign(request.job_ids().begin(), request.job_ids().end());
  if (filter.ids.size() > kListMost) filter.ids.resize(kListMost);
  const auto trouble = parts_.executor.trouble();
  const auto most = static_cast<int>(filter.limit);
  // The state alone does not tell whether a job is held. A row may be left out, so further rows are read.
  for (int page = 0; page < kMostListPages && response.jobs_size() < most; ++page) {
    const auto rows = parts_.store.list(filter);
    for (const auto& row : rows) {
      const auto open = core::is_ended(row.state) ? nullptr : parts_.event_log.job(row.id);
      const bool refused = !refusal_of(open != nullptr ? *open : ended_job(row), request.may()).empty();
      if (refused || response.jobs_size() == most) continue;
      const auto spec = parts_.specs.get(row.id);
      auto& job = *response.add_jobs();
      job = row_view(row, open != nullptr ? standing(*open) : standing_of({ended_job(row)}), spec.get(),
                     row.newest_attempt ? parts_.newest.get(row.id) : std::nullopt);
      if (open != nullptr) fill_open(*open, trouble, job);
    }
    if (rows.size() < filter.limit) break;
    filter.before = rows.back().id;
  }
  response.set_total(filter.ids.empty() ? parts_.store.count(filter.states, filter.sweep) : response.jobs_size());
  return response;
}

base::Outcome<muster::v1::Job> JobPages::get(core::JobId id) {
  try {
    const auto job = parts_.event_log.job(id);
    if (job == nullptr) return refuse(base::Refusal::Kind::kNotFound, "there is no job " + std::to_string(id));
    if (job->removed_at) return refuse(base::Refusal::Kind::kNotFound, core::removed_text(*job));
    return view(job);
  } catch (const std::exception& e) {
    return refuse(base::Refusal::Kind::kUnavailable, e.what());
  }
}

base::Outcome<muster::v1::JobSpec> JobPages::spec(core::JobId id) {
  try {
    const auto job = parts_.event_log.job(id);
    if (job != nullptr && job->removed_at) return refuse(base::Refusal::Kind::kNotFound, core::removed_text(*job));
    const auto spec = job == nullptr ? nullptr : parts_.specs.get(id);
    if (spec == nullptr) return refuse(base::Refusal::Kind::kNotFound, "there is no job " + std::to_string(id));
    return *spec;
  } catch (const std::exception& e) {
    return refuse(base::Refusal::Kind::kUnavailable, e.what());
  }
}

muster::v1::Job JobPages::view(const jobs::JobPtr& job) {
  const auto spec = parts_.specs.get(job->id);
  if (spec == nullptr) throw std::runtime_error("job " + std::to_string(job->id) + " has no stored spec");
  const auto* newest = job->current();
  return job_view({*job, *spec, parts_.live_ranks, parts_.data, parts_.clock.monotonic(),
                   newest ? parts_.newest.get(job->id) : std::nullopt,
                   newest ? parts_.newest.series(job->id) : std::vector<store::SeriesRow>(), parts_.executor.trouble(),
                   standing(*job)});
}

std::string JobPages::log_path(core::JobId id, core::AttemptNumber attempt, core::RankNumber rank) {
  const auto job = parts_.event_log.job(id);
  if (job == nullptr || job->removed_at || attempt == 0 || attempt > job->attempts.size() || rank >= job->world_size)
    return {};
  return parts_.data.log({id, attempt}, rank).string();
}

std::string JobPages::scheduler_log_path(core::JobId id, core::AttemptNumber attempt) {
  const auto job = parts_.event_log.job(id);
  if (job == nullptr || job->removed_at || attempt == 0 || attempt > job->attempts.size() || !parts_.scheduler_log)
    return {};
  if (!job->attempts[attempt - 1].scheduler_job) return {};
  return parts_.scheduler_log(parts_.data.attempt({id, attempt})).string();
}

}  // namespace service
