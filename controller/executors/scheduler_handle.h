#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace runtime {

/// How attempts on Slurm are called in the history: "Slurm job 1234", "Slurm job 1234_5".
inline constexpr std::string_view kSlurmHandle = "Slurm job ";

inline std::string scheduler_handle(std::string_view job) {
  return std::string(kSlurmHandle) + std::string(job);
}
/// "1234"; nullopt: it is no attempt on Slurm.
inline std::optional<std::string> scheduler_job_of(std::string_view handle) {
  if (!handle.starts_with(kSlurmHandle)) return std::nullopt;
  return std::string(handle.substr(kSlurmHandle.size()));
}

}  // namespace runtime
