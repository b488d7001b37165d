#pragma once

#include <filesystem>
#include <string>

namespace base {

/// Why one file is a save that was cut off, beginning with the file's name; empty: nothing shows that. What shows it is
/// listed at why_torn() in base/torn_save.h. Reads the file's head, which of .safetensors may be long, and its last 64
/// KiB.
std::string why_file_is_torn(const std::filesystem::path& path);

}  // namespace base
