#pragma once

#include <map>
#include <string>
#include <vector>

#include "controller/service/parts.h"
#include "controller/service/views.h"

namespace service {

/// The jobs of a sweep that are not removed, in the order of their ids.
std::vector<core::JobId> jobs_of(store::Store& store, const std::string& sweep);

/// Changes by people to jobs that are there. A removal is recorded here; JobRemover deletes the files. Thread-safe.
class JobChanges {
 public:
  JobChanges(const Parts& parts, Views& views) : parts_(parts), views_(views) {}

  /// The job after the change.
  common::Outcome<muster::v1::Job> ask(core::JobId id, core::EventBody body);
  common::Outcome<muster::v1::Job> set_time_limit(core::JobId id, core::Millis limit, const std::string& user);
  common::Outcome<muster::v1::ChangeSweepResponse> change_sweep(const muster::v1::ChangeSweepRequest& request);
  common::Outcome<muster::v1::RemoveResponse> remove(const muster::v1::RemoveRequest& request);

 private:
  /// Each job that an open job waits for or saves into, with that open job.
  std::map<core::JobId, core::JobId> needed_by_open_jobs();
  muster::v1::RemovedJob removal_of(const core::Job& job);

  const Parts& parts_;
  Views& views_;
};

}  // namespace service
