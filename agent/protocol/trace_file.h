#pragma once

#include <cstdint>
#include <string>

namespace agent::protocol {

/// The folder below the folder of the checkpoints in which ranks record steps.
inline constexpr const char* kTraceFolder = "trace";

/// The file of one step and one rank there: "step-3.rank0.json".
inline std::string trace_file_name(std::int64_t step, std::int64_t rank) {
  return "step-" + std::to_string(step) + ".rank" + std::to_string(rank) + ".json";
}

/// "step 41", "steps 41 to 43".
inline std::string traced_steps_text(std::int64_t first, std::int64_t steps) {
  const auto from = std::to_string(first);
  return steps == 1 ? "step " + from : "steps " + from + " to " + std::to_string(first + steps - 1);
}

/// A request names its trace by a number from 1 to this: ranks agree on it in doubles.
inline constexpr std::uint64_t kMostTraceNumber = (std::uint64_t{1} << 53) - 1;
/// The most steps of one request, as of train.trace_steps.
inline constexpr std::uint32_t kMostTraceSteps = 1000;

}  // namespace agent::protocol
