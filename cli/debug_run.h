#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace cli {

/// What the report file of a rank that has ended says, for the person who tries a program with executor = "debug":
/// steps, newest values, checkpoint, error, and what of it cannot be read. One line for each; empty: there is nothing.
std::string what_was_reported(const std::filesystem::path& report_file, std::uint32_t rank);

}  // namespace cli
