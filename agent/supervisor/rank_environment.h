#pragma once

#include "agent/supervisor/launch_file.h"
#include "launch/environment.h"

namespace runtime::local {

/// A rank's whole environment, from the launch file alone: nothing of this process's own. See [Note: a rank's
/// environment] in launch/environment.h. `node` is this machine's name.
launch::Environment rank_environment(const LaunchFile& launch, core::RankNumber rank, const std::string& node);

}  // namespace runtime::local
