#pragma once

#include <filesystem>
#include <string>

namespace cli {

/// The file of a program, beside this one or else in PATH; empty: there is none.
std::filesystem::path find_program(const std::string& name);

}  // namespace cli
