#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace beside {

/// The oldest attempt that may still write into a checkpoint folder: N of "attempt N" in its file FENCE. Nothing if
/// there is no such file, or it says something else.
std::optional<std::uint32_t> read_fence(const std::filesystem::path& folder);

}  // namespace beside
