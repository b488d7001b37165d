#pragma once

#include <map>
#include <optional>
#include <string>

#include "runtime/local/launch_file.h"

namespace runtime::local {

using Environment = std::map<std::string, std::string>;

/// This process's own.
Environment own_environment();

/// Which devices a rank sees when it is given `gpus_per_rank`: its slice of 0, 1, 2, ..., or of `allowed`, the list
/// that this machine's administrator set as CUDA_VISIBLE_DEVICES ("4,5"; empty: not set). Nothing if the list is too
/// short.
std::optional<std::string> visible_devices(const std::string& allowed, std::uint32_t gpus_per_rank,
                                           core::RankNumber local_rank);

/// A rank's environment: `inherited` without MUSTER_* (the controller's own settings and secrets), then RANK LOCAL_RANK
/// NODE_RANK WORLD_SIZE LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT and, if it has GPUs, CUDA_VISIBLE_DEVICES, then what
/// the job sets, which always wins.
Environment rank_environment(const LaunchFile& launch, const Environment& inherited, core::RankNumber rank);

}  // namespace runtime::local
