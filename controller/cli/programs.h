#pragma once

#include <filesystem>
#include <string>

namespace cli {

/// The program beside this one or in PATH; empty if there is none.
std::filesystem::path find_program(const std::string& name);

}  // namespace cli
