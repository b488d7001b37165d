#include "controller/service/job_changes.h"

#include <algorithm>
#include <optional>

#include "controller/common/data_folder.h"
#include "controller/service/standing.h"

namespace service {
namespace {

namespace v1 = muster::v1;
using common::Outcome;
using common::Refusal;

constexpr int kMostRemoved = 1000;

void fill_change(const core::Job& job, v1::Job& out) {
  out.set_id(job.id);
  out.set_name(job.name);
  out.set_state(std::string(core::to_string(job.state)));
  out.set_reason(job.reason);
  out.set_user(job.user);
  out.set_status(status_word(job));
  if (job.held) out.set_held_by(job.held_by);
}

}  // namespace

std::vector<core::JobId> jobs_of(store::Store& store, const std::string& sweep) {
  store::ListFilter filter;
  filter.sweep = sweep;
  filter.limit = kListMost;
  std::vector<core::JobId> ids;
  for (bool more = true; more;) {
    const auto rows = store.list(filter);
    for (const auto& row : rows) ids.push_back(row.id);
    more = rows.size() == kListMost;
    if (more) filter.before = rows.back().id;
  }
  std::ranges::sort(ids);
  return ids;
}

Outcome<v1::Job> JobChanges::set_time_limit(core::JobId id, core::Millis limit, const std::string& user) {
  if (limit < core::Millis(0)) return Refusal::invalid("time_limit: want a duration such as 12h");
  try {
    const auto job = parts_.event_log.job(id);
    const bool is_there = job != nullptr && !job->removed_at;
    if (const auto refusal = is_there ? parts_.partitions.judge_time(*job, limit) : std::nullopt) return *refusal;
  } catch (const std::exception& e) {
    return Refusal::unavailable(e.what());
  }
  return ask(id, core::TimeLimitChanged{user_or_unknown(user), limit});
}

Outcome<v1::ChangeSweepResponse> JobChanges::change_sweep(const v1::ChangeSweepRequest& request) {
  const auto user = user_or_unknown(request.user());
  std::optional<core::EventBody> body;
  if (request.change() == v1::SWEEP_CHANGE_CANCEL) body = core::CancelRequested{user};
  if (request.change() == v1::SWEEP_CHANGE_REQUEUE) body = core::RequeueRequested{user};
  if (request.change() == v1::SWEEP_CHANGE_HOLD) body = core::HoldRequested{user};
  if (request.change() == v1::SWEEP_CHANGE_RELEASE) body = core::ReleaseRequested{user};
  if (!body) {
    return Refusal::invalid("change " + std::to_string(static_cast<int>(request.change())) +
                            ": want cancel, requeue, hold or release");
  }
  try {
    const auto ids = request.sweep().empty() ? std::vector<core::JobId>{} : jobs_of(parts_.store, request.sweep());
    if (ids.empty()) {
      return Refusal::not_found("no sweep " + request.sweep() + "; muster list shows the sweeps there are");
    }
    const auto outcome = parts_.event_log.request_all(ids, std::move(*body));
    if (!outcome.ok()) return outcome.refusal();
    const auto& [jobs, refusals] = outcome.value();
    if (jobs.empty()) {
      return Refusal::wrong_state("none of the " + std::to_string(ids.size()) + " jobs of sweep " + request.sweep() +
                                  " allows it; the last said: " + (refusals.empty() ? "" : refusals.back()));
    }
    v1::ChangeSweepResponse response;
    for (const auto& job : jobs) fill_change(*job, *response.add_jobs());
    response.set_refused(static_cast<std::uint32_t>(refusals.size()));
    if (!refusals.empty()) response.set_refusal(refusals.back());
    return response;
  } catch (const std::exception& e) {
    return Refusal::unavailable(e.what());
  }
}

Outcome<v1::Job> JobChanges::ask(core::JobId id, core::EventBody body) {
  const auto outcome = parts_.event_log.request(id, std::move(body));
  if (!outcome.ok()) return outcome.refusal();
  try {
    return views_.view(outcome.value());
  } catch (const std::exception& e) {
    return Refusal::unavailable(std::string("it is done, but the job cannot be shown: ") + e.what());
  }
}

std::map<core::JobId, core::JobId> JobChanges::needed_by_open_jobs() {
  std::map<core::JobId, core::JobId> needed;
  for (const auto& job : parts_.event_log.open_jobs()) {
    for (const auto& dependency : job->after) needed.emplace(dependency.job, job->id);
    const auto spec = parts_.specs.get(job->id);
    if (spec == nullptr || spec->checkpoint().folder().empty()) continue;
    if (const auto id = parts_.data.job_of(spec->checkpoint().folder())) needed.emplace(*id, job->id);
  }
  return needed;
}

v1::RemovedJob JobChanges::removal_of(const core::Job& job) {
  v1::RemovedJob out;
  out.set_job_id(job.id);
  out.set_name(job.name);
  out.set_state(std::string(core::to_string(job.state)));
  out.set_bytes(common::bytes_below(parts_.data.job(job.id)));
  if (const auto spec = parts_.specs.get(job.id)) out.set_kept_checkpoint_folder(spec->checkpoint().folder());
  return out;
}

Outcome<v1::RemoveResponse> JobChanges::remove(const v1::RemoveRequest& request) {
  if (request.job_ids_size() > kMostRemoved) {
    return Refusal::limit("job_ids: " + std::to_string(request.job_ids_size()) + " jobs; at most " +
                          std::to_string(kMostRemoved) + " at once, remove them in parts");
  }
  v1::RemoveResponse response;
  const auto refused = [&](core::JobId id, const std::string& why, bool is_gone) {
    auto& out = *response.add_refused();
    out.set_job_id(id);
    out.set_why(why);
    out.set_is_gone(is_gone);
  };
  try {
    std::map<core::JobId, v1::RemovedJob> wanted;
    for (const auto id : request.job_ids()) {
      const auto job = parts_.event_log.job(id);
      if (job == nullptr) {
        refused(id, "there is no job " + std::to_string(id), true);
      } else if (const auto why = core::refusal_text(*job, core::JobRemoved{}); !why.empty()) {
        refused(id, why, job->removed_at.has_value());
      } else {
        wanted.emplace(id, removal_of(*job));
      }
    }
    // Last: measuring a large folder takes time, in which a job may be submitted that needs it.
    for (const auto& [id, by] : needed_by_open_jobs()) {
      if (wanted.erase(id) == 0) continue;
      refused(id,
              "job " + std::to_string(id) + " is needed by job " + std::to_string(by) +
                  ", which has not ended: remove it after that one",
              false);
    }
    if (!request.dry_run() && !wanted.empty()) {
      std::vector<core::JobId> ids;
      for (const auto& [id, removal] : wanted) ids.push_back(id);
      const auto outcome = parts_.event_log.request_all(ids, core::JobRemoved{user_or_unknown(request.user())});
      if (!outcome.ok()) return outcome.refusal();
      std::map<core::JobId, v1::RemovedJob> removed;
      for (const auto& job : outcome.value().jobs) removed.insert(wanted.extract(job->id));
      // A failed job may have been requeued since it was looked at.
      for (const auto& [id, removal] : wanted)
        refused(id, "job " + std::to_string(id) + " has changed meanwhile", false);
      wanted = std::move(removed);
    }
    for (auto& [id, removal] : wanted) *response.add_removed() = std::move(removal);
    return response;
  } catch (const std::exception& e) {
    return Refusal::unavailable(e.what());
  }
}

}  // namespace service
