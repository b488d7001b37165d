#pragma once

#include "base/data_folder.h"
#include "core/job.h"
#include "executors/executor.h"
#include "muster/v1/job.pb.h"
#include "muster/v1/job_service.pb.h"
#include "ranks/live_ranks.h"
#include "service/standing.h"
#include "store/store.h"

namespace service {

/// What the job's page shows. `newest`: rank 0's newest step, if any.
struct JobFacts {
  const core::Job& job;
  const muster::v1::JobSpec& spec;
  const ranks::LiveRanks& live_ranks;
  const base::DataFolder& data;
  core::Millis now{0};  // monotonic
  std::optional<store::MetricRow> newest;
  std::vector<store::SeriesRow> series = {};
  std::optional<executors::Trouble> trouble = std::nullopt;  // of the executor
  Standing standing = {};
};
muster::v1::Job job_view(const JobFacts& facts);

/// What a job that has not ended waits for: who holds it, other jobs, a scheduler that can't be asked.
void fill_open(const core::Job& job, const std::optional<executors::Trouble>& trouble, muster::v1::Job& out);

/// As much of an ended job as its standing needs, without reading its history.
core::Job ended_job(const store::JobRow& row);
/// A line of a list: the newest attempt alone, no spec, no ranks. `spec` may be null: what it says is left out.
muster::v1::Job row_view(const store::JobRow& row, const Standing& standing, const muster::v1::JobSpec* spec,
                         const std::optional<store::MetricRow>& newest);
muster::v1::Event event_view(const store::StoredEvent& event);
muster::v1::Metric metric_view(const store::StepRow& row);

}  // namespace service
