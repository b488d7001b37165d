#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace os {

/// Why one file is a save that was cut off, beginning with the file's name; empty: nothing shows that. docs of
/// why_torn() in os/torn_save.h say what does. Reads the file's head and its last 64 KiB at most.
std::string why_file_is_torn(const std::filesystem::path& path);

}  // namespace os
