#pragma once

#include "core/job.h"
#include "muster/v1/job.pb.h"
#include "runtime/data_folder.h"
#include "runtime/rank_board.h"
#include "store/store.h"

namespace runtime {

/// RFC 3339, UTC, milliseconds: "2026-11-20T19:45:24.123Z".
std::string time_text(core::Time time);
/// Empty: not yet.
std::string time_text(const std::optional<core::Time>& time);

/// What the job's page shows. `newest`: rank 0's newest step, if any.
struct JobFacts {
  const core::Job& job;
  const muster::v1::JobSpec& spec;
  const RankBoard& board;
  const DataFolder& data;
  core::Millis now{0};  // monotonic
  std::optional<store::MetricRow> newest;
};
muster::v1::Job job_view(const JobFacts& facts);

/// A line of a list: the newest attempt alone, no spec, no ranks.
muster::v1::Job row_view(const store::JobRow& row, std::int64_t steps_total,
                         const std::optional<store::MetricRow>& newest);
muster::v1::Event event_view(const store::StoredEvent& event);
muster::v1::Metric metric_view(const store::StepRow& row);

}  // namespace runtime
