#pragma once

#include <cstdint>

namespace proto {

/// The value of LogsRequest.rank and LogChunk.rank for the log that belongs to no rank. The scheduler, the lines before
/// the ranks and muster-agent write that log. No rank has this number. An earlier controller refuses the number as a
/// rank.
inline constexpr std::uint32_t kSchedulerLog = UINT32_MAX;

}  // namespace proto
