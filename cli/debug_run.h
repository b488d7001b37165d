#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace cli {

/// News in the report file of a rank that has ended, for people who try a program with executor = "debug": steps,
/// newest values, checkpoint, error, and what of it cannot be read. One line for each; empty: there is nothing.
std::string what_was_reported(const std::filesystem::path& report_file, std::uint32_t rank);

}  // namespace cli
