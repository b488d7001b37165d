#pragma once

#include "agent/protocol/launch.h"
#include "spec/variables.h"

namespace agent::supervisor {

/// A rank's whole environment, from the launch file alone: nothing of this process's own. See [Note: a rank's
/// environment] in spec/variables.h. `node` is this machine's name.
spec::Environment rank_environment(const protocol::LocalLaunch& launch, std::uint32_t rank, const std::string& node);

/// The rank's environment for its agent: with the variables of a rank, which a rank with its own launcher does not get.
spec::Environment agents_environment(protocol::LocalLaunch launch, std::uint32_t rank, const std::string& node);

}  // namespace agent::supervisor
