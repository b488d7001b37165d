#pragma once

#include "core/job.h"
#include "muster/v1/job.pb.h"
#include "muster/v1/job_service.pb.h"
#include "runtime/data_folder.h"
#include "runtime/executor.h"
#include "runtime/rank_board.h"
#include "store/store.h"

namespace runtime {

/// RFC 3339, UTC, milliseconds: "2026-11-20T19:45:24.123Z".
std::string time_text(core::Time time);
/// Empty: not yet.
std::string time_text(const std::optional<core::Time>& time);
/// "unreachable since 2026-11-20T19:45:24.123Z: squeue gave no answer".
std::string unreachable_text(const Trouble& trouble);

/// What the job's page shows. `newest`: rank 0's newest step, if any.
struct JobFacts {
  const core::Job& job;
  const muster::v1::JobSpec& spec;
  const RankBoard& board;
  const DataFolder& data;
  core::Millis now{0};  // monotonic
  std::optional<store::MetricRow> newest;
  std::optional<Trouble> trouble = std::nullopt;  // of the executor
};
muster::v1::Job job_view(const JobFacts& facts);

/// Whether a start that the scheduler names means anything: it takes a job without a time limit for one of a year, so
/// what comes after such a job would start a year after that one did.
bool is_foreseen(core::Time start, core::Time now);

/// Why the job is in its state and what to do, in words. `queue`: what the scheduler says of its attempt.
muster::v1::WhyResponse why_view(const core::Job& job, const std::optional<QueueWord>& queue,
                                 const std::optional<Trouble>& trouble);

/// What a job that has not ended waits for: who holds it, other jobs, a scheduler that can't be asked.
void fill_open(const core::Job& job, const std::optional<Trouble>& trouble, muster::v1::Job& out);

/// A line of a list: the newest attempt alone, no spec, no ranks.
muster::v1::Job row_view(const store::JobRow& row, std::int64_t steps_total,
                         const std::optional<store::MetricRow>& newest);
muster::v1::Event event_view(const store::StoredEvent& event);
muster::v1::Metric metric_view(const store::StepRow& row);

}  // namespace runtime
