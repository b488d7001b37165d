#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "admission/admission.h"
#include "base/data_folder.h"
#include "base/outcome.h"
#include "jobs/event_log.h"
#include "muster/v1/job_service.pb.h"
#include "partitions/partitions.h"
#include "ranks/live_ranks.h"
#include "ranks/newest_metrics.h"
#include "service/standing.h"

namespace service {

/// What people read of jobs: lists, pages, reasons, log files. Thread-safe; changes nothing.
class JobPages {
 public:
  struct Parts {
    store::Store& store;
    executors::Executor& executor;
    base::Clock& clock;
    jobs::EventLog& event_log;
    jobs::SpecCache& specs;
    ranks::NewestMetrics& newest;
    ranks::LiveRanks& live_ranks;
    partitions::Partitions& partitions;
    admission::Admission& admission;
    const base::DataFolder& data;
    /// The log of an attempt that was handed to a scheduler, from its folder; empty: there is no scheduler.
    std::function<std::filesystem::path(const std::filesystem::path&)> scheduler_log;
  };
  explicit JobPages(Parts parts) : parts_(std::move(parts)) {}

  muster::v1::ListResponse list(const muster::v1::ListRequest& request);
  base::Outcome<muster::v1::Job> get(core::JobId id);
  base::Outcome<muster::v1::JobSpec> spec(core::JobId id);
  base::Outcome<muster::v1::WhyResponse> why(core::JobId id);
  std::string log_path(core::JobId id, core::AttemptNumber attempt, core::RankNumber rank);
  std::string scheduler_log_path(core::JobId id, core::AttemptNumber attempt);
  /// Throws store::Error, or std::runtime_error if the job has no stored spec.
  muster::v1::Job view(const jobs::JobPtr& job);

 private:
  /// Asks every part that may know why the job waits.
  Standing standing(const core::Job& job);

  Parts parts_;
};

}  // namespace service
