#pragma once

#include <cstdint>
#include <optional>

namespace agent::protocol {

/// What the processes of one rank use, as the agent beside the rank sees it.
struct RankUse {
  std::int64_t at_ms = 0;       // when, by the node's clock, since 1970; it tells two samples apart
  std::optional<double> cores;  // CPU time over time: 1.7 cores. Absent in the first sample
  std::int64_t memory_bytes = 0;
  std::int64_t memory_peak_bytes = 0;  // the most of any sample
  std::uint32_t processes = 0;
  // Of all GPUs of the rank, all users of these GPUs counted. Absent: it has none, or they don't say.
  std::optional<double> gpu_percent;
  std::optional<std::int64_t> gpu_memory_bytes;
  bool operator==(const RankUse&) const = default;
};

}  // namespace agent::protocol
