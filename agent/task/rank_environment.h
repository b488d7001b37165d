#pragma once

#include <optional>

#include "agent/protocol/task_launch.h"
#include "agent/rank/environment.h"
#include "spec/environment.h"

namespace agent::task {

/// The value of a variable as the rank sees it: the job's own stands above the task's.
std::optional<std::string> variable_of(const spec::Environment& inherited, const protocol::TaskLaunch& launch,
                                       const char* name);

/// A rank's whole environment; see [Note: a rank's environment] in spec/environment.h. `inherited` is the
/// task's own, which Slurm has made. `meeting_point` is where rank 0 listens, for a program that is to be told.
spec::Environment rank_environment(const spec::Environment& inherited, const protocol::TaskLaunch& launch,
                                   const rank::RankEnvironment& place,
                                   const std::optional<rank::Endpoint>& meeting_point);

}  // namespace agent::task
