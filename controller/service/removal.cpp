#include "service/removal.h"

#include "base/job_files.h"
#include "service/requests.h"

namespace service {
namespace {

constexpr int kMostRemoved = 1000;

}  // namespace

std::map<core::JobId, core::JobId> Removal::needed_by_open_jobs() {
  std::map<core::JobId, core::JobId> needed;
  for (const auto& job : parts_.event_log.open_jobs()) {
    for (const auto& dependency : job->after) needed.emplace(dependency.job, job->id);
    const auto spec = parts_.specs.get(job->id);
    if (spec == nullptr || spec->checkpoint().folder().empty()) continue;
    if (const auto id = parts_.data.job_of(spec->checkpoint().folder())) needed.emplace(*id, job->id);
  }
  return needed;
}

muster::v1::RemovedJob Removal::removal_of(const core::Job& job) {
  muster::v1::RemovedJob out;
  out.set_job_id(job.id);
  out.set_name(job.name);
  out.set_state(std::string(core::to_string(job.state)));
  out.set_bytes(base::bytes_below(parts_.data.job(job.id)));
  if (const auto spec = parts_.specs.get(job.id)) out.set_kept_checkpoint_folder(spec->checkpoint().folder());
  return out;
}

base::Outcome<muster::v1::RemoveResponse> Removal::remove(const muster::v1::RemoveRequest& request) {
  if (request.job_ids_size() > kMostRemoved) {
    return refuse(base::Refusal::Kind::kLimit, "job_ids: " + std::to_string(request.job_ids_size()) +
                                                   " jobs; at most " + std::to_string(kMostRemoved) +
                                                   " at once, remove them in parts");
  }
  muster::v1::RemoveResponse response;
  const auto refused = [&](core::JobId id, const std::string& why, bool is_gone) {
    auto& out = *response.add_refused();
    out.set_job_id(id);
    out.set_why(why);
    out.set_is_gone(is_gone);
  };
  try {
    std::map<core::JobId, muster::v1::RemovedJob> wanted;
    for (const auto id : request.job_ids()) {
      const auto job = parts_.event_log.job(id);
      if (job == nullptr) {
        refused(id, "there is no job " + std::to_string(id), true);
      } else if (const auto why = core::refusal_of(*job, core::JobRemoved{}); !why.empty()) {
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
      std::map<core::JobId, muster::v1::RemovedJob> removed;
      for (const auto& job : outcome.value().jobs) removed.insert(wanted.extract(job->id));
      // A failed job may have been requeued since it was looked at.
      for (const auto& [id, removal] : wanted)
        refused(id, "job " + std::to_string(id) + " has changed meanwhile", false);
      wanted = std::move(removed);
    }
    for (auto& [id, removal] : wanted) *response.add_removed() = std::move(removal);
    return response;
  } catch (const std::exception& e) {
    return refuse(base::Refusal::Kind::kUnavailable, e.what());
  }
}

}  // namespace service
