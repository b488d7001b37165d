#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "launch/environment.h"
#include "muster/v1/job.pb.h"

namespace cli {

/// What all ranks of a debug run share.
struct DebugPlace {
  std::filesystem::path folder;  // the attempt's folder
  std::string checkpoints;
  std::string master_port;
};

/// A rank's environment, as in an attempt; see [Note: a rank's environment] in launch/environment.h. A rank also gets
/// TERM, since it uses this terminal. muster-worker also gets a file for its metrics, since there is no controller.
launch::Environment debug_environment(const muster::v1::JobSpec& spec, const DebugPlace& place, std::uint32_t rank);

}  // namespace cli
