#pragma once

#include <cstdint>

namespace proto {

/// What LogsRequest.rank and LogChunk.rank call the log that is no rank's: what the scheduler, the lines before the
/// ranks and what stands beside them wrote. No rank has this number; a controller of before refuses it as one.
inline constexpr std::uint32_t kSchedulerLog = UINT32_MAX;

}  // namespace proto
