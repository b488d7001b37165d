#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "agent/report/relay.h"
#include "muster/v1/rank_service.pb.h"

namespace agent::report {

/// Connects by gRPC, as the rank with this environment would do by itself. `pid`: its process.
Connect connect_by_grpc(const std::map<std::string, std::string>& environment, pid_t pid);

/// The most bytes of a report file that are read late; of a longer file, only the end is read.
inline constexpr std::uint64_t kMostReadLate = 16 << 20;

/// Reads the report file of a rank whose program has ended, in place of the agent that died before it had told all.
/// `take` gets what a rank would tell in heartbeats, oldest first, without the steps below `first_step`; it returns
/// false to hear no more. False: it did. Waits as long as the file system does.
bool read_reports_late(const std::filesystem::path& file, const muster::v1::RankKey& key, std::int64_t first_step,
                       const std::function<bool(const muster::v1::HeartbeatRequest&)>& take);

}  // namespace agent::report
