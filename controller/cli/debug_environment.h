#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "launch/environment.h"
#include "muster/v1/job.pb.h"

namespace cli {

/// What the ranks of a debug run have in common.
struct DebugPlace {
  std::filesystem::path folder;  // of its attempt
  std::string checkpoints;
  std::string master_port;
};

/// A rank's whole environment, as an attempt's: see [Note: a rank's environment] in launch/environment.h. Besides it
/// gets TERM, as it has this terminal, and muster-worker a file for its metrics, as no controller takes them.
launch::Environment debug_environment(const muster::v1::JobSpec& spec, const DebugPlace& place, std::uint32_t rank);

}  // namespace cli
