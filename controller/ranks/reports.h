#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "controller/executors/executor.h"
#include "controller/store/store.h"
#include "muster/v1/rank_service.pb.h"

namespace ranks {

/// A reported step, as the store has it. Values whose names are no names of series are left out.
store::MetricRow row_of(const core::AttemptKey& key, core::RankNumber rank, const muster::v1::StepMetric& m);

/// The series that the heartbeat declares, without those whose names are no names of series.
std::vector<store::DeclaredSeries> declared_of(const core::AttemptKey& key,
                                               const muster::v1::HeartbeatRequest& request);

/// The report of a task, and the use in it, for the task's executor.
agent::protocol::RankUse use_of(const muster::v1::RankUse& use);
executors::TaskReport report_of(const muster::v1::TaskRequest& request);

/// Reads what a rank wrote down while the controller was away (agent/rank/grpc/grpc_unsent_file.h), oldest first, until
/// `take` returns false. The rank may have been killed while it wrote: an end in the middle of a report is the end.
/// True if all was taken, and if there is no such file. Throws std::system_error, naming the file, if it can't be
/// read.
bool read_unsent(const std::filesystem::path& file,
                 const std::function<bool(const muster::v1::HeartbeatRequest&)>& take);

}  // namespace ranks
