#pragma once

#include <filesystem>
#include <optional>

#include "agent/protocol/fence_file.h"

namespace agent::watch {

/// The fence of a checkpoint folder, in its file FENCE. Nothing if there is no such file, or it says something else.
std::optional<protocol::Fence> read_fence(const std::filesystem::path& folder);

}  // namespace agent::watch
