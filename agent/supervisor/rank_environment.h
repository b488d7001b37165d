#pragma once

#include "agent/environment/environment.h"
#include "agent/protocol/local_launch.h"

namespace agent::supervisor {

/// A rank's whole environment, from the launch file alone: nothing of this process's own. See [Note: a rank's
/// environment] in agent/environment/environment.h. `node` is this machine's name.
launch::Environment rank_environment(const contract::LocalLaunch& launch, std::uint32_t rank, const std::string& node);

/// The same with the variables of a rank, for the agent that speaks for it. A rank with a launcher of its own has none.
launch::Environment agents_environment(contract::LocalLaunch launch, std::uint32_t rank, const std::string& node);

}  // namespace agent::supervisor
