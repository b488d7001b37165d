#pragma once

#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "executors/executor.h"

namespace executors::local {

/// A request that can never be started on this machine as it is; what() says which value is wrong and what to do.
struct Impossible : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr std::uint32_t kMaxRanks = 1024;

/// The GPUs that this machine's administrator lets jobs see: CUDA_VISIBLE_DEVICES of this process; nothing: all.
std::optional<std::string> allowed_devices();

/// What local processes can never be, whatever the machine does: on several nodes, on Slurm, with GPUs where `devices`
/// (/dev) has none.
std::vector<Unfit> unfit_for_local(const LaunchRequest& request, const std::filesystem::path& devices);

/// Looks at everything that can be known before a process is started. Returns the program to execute: argv[0] if it
/// holds a slash, else the first executable of that name in the PATH of the job's env, or of its base environment.
/// Throws Impossible.
std::string check_launch(const LaunchRequest& request);

}  // namespace executors::local
