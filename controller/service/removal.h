#pragma once

#include <map>

#include "base/data_folder.h"
#include "base/outcome.h"
#include "jobs/event_log.h"
#include "jobs/spec_cache.h"
#include "muster/v1/job_service.pb.h"

namespace service {

/// Decides which jobs may be removed and records their removal; JobRemover deletes the files. Thread-safe.
class Removal {
 public:
  struct Parts {
    jobs::EventLog& event_log;
    jobs::SpecCache& specs;
    const base::DataFolder& data;
  };
  explicit Removal(Parts parts) : parts_(parts) {}

  base::Outcome<muster::v1::RemoveResponse> remove(const muster::v1::RemoveRequest& request);

 private:
  /// Each job that an open job waits for or saves into, with that open job.
  std::map<core::JobId, core::JobId> needed_by_open_jobs();
  muster::v1::RemovedJob removal_of(const core::Job& job);

  Parts parts_;
};

}  // namespace service
