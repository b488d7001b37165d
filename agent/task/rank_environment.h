#pragma once

#include <optional>

#include "agent/environment/environment.h"
#include "agent/protocol/task_launch.h"
#include "agent/rank/environment.h"

namespace agent::task {

/// The value of a variable as the rank sees it: the job's own stands above the task's.
std::optional<std::string> variable_of(const launch::Environment& inherited, const contract::TaskLaunch& launch,
                                       const char* name);

/// A rank's whole environment; see [Note: a rank's environment] in agent/environment/environment.h. `inherited` is the
/// task's own, which Slurm has made. `meeting_point` is where rank 0 listens, for a program that is to be told.
launch::Environment rank_environment(const launch::Environment& inherited, const contract::TaskLaunch& launch,
                                     const worker::RankEnvironment& place,
                                     const std::optional<worker::Endpoint>& meeting_point);

}  // namespace agent::task
