#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace agent::watch {

/// A part of a file, and how large the whole is.
struct FilePart {
  std::string bytes;
  std::uint64_t size = 0;
};

/// At most `most` bytes of a regular file from `offset` on. Empty: there is no such file, or no more in it. A pipe of
/// that name is not waited for.
FilePart read_part(const std::filesystem::path& file, std::uint64_t offset, std::size_t most);

}  // namespace agent::watch
