#pragma once

#include <optional>
#include <string>

#include "base/data_folder.h"
#include "base/outcome.h"
#include "executors/executor.h"
#include "jobs/event_log.h"
#include "muster/v1/job_service.pb.h"
#include "partitions/partitions.h"

namespace service {

/// Takes jobs and sweeps in: fills defaults, judges the spec, and answers once the first event is durable. Thread-safe.
class Submission {
 public:
  struct Parts {
    store::Store& store;
    executors::Executor& executor;
    jobs::EventLog& event_log;
    partitions::Partitions& partitions;
    const base::DataFolder& data;
    bool check_folders = false;  // a job file's folders must exist on this machine
  };
  explicit Submission(Parts parts) : parts_(parts) {}

  base::Outcome<muster::v1::SubmitResponse> submit(const muster::v1::SubmitRequest& request);
  base::Outcome<muster::v1::SubmitSweepResponse> submit_sweep(const muster::v1::SubmitSweepRequest& request);
  /// Fills the defaults. Returns everything that is wrong with the spec, a line each; empty: nothing is.
  std::string problems_of(muster::v1::JobSpec& spec) const;

 private:
  /// Drops a partition's refusal of a request that was answered before. That request gets the same answer again.
  std::optional<base::Refusal> unless_known(std::optional<base::Refusal> refusal, const std::string& request_id);

  Parts parts_;
};

}  // namespace service
