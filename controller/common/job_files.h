#pragma once

#include <cstdint>
#include <filesystem>

namespace common {

/// The room that a folder and all below it take on the disk. Links are not followed. 0: it is not there.
std::int64_t bytes_below(const std::filesystem::path& folder);

}  // namespace common
