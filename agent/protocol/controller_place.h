#pragma once

#include <filesystem>
#include <string>

namespace agent::protocol {

/// The member of musterd.json that ranks read: HOST:PORT by which they reach musterd. common::ReadyFile has the others.
inline constexpr const char* kAdvertised = "advertised";

/// Where musterd is now, by its musterd.json (MUSTER_CONTROLLER_FILE); empty: no musterd is ready, or the file can't be
/// read. May wait for the disk.
std::string advertised_in(const std::filesystem::path& ready_file);

}  // namespace agent::protocol
