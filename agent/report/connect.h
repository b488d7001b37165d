#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "agent/report/relay.h"

namespace agent::report {

/// Connects by gRPC, as the rank with this environment would do by itself. `pid`: its process.
Connect connect_by_grpc(const std::map<std::string, std::string>& environment, pid_t pid);

}  // namespace agent::report
