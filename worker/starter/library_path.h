#pragma once

#include <filesystem>

namespace starter {

/// Lets the program that this process becomes find libraries in this folder first, by LD_LIBRARY_PATH.
void lend_library_path(const std::filesystem::path& folder);

/// The first act of a program that may have a starter: its variables are the caller's again, so what it starts finds
/// the caller's libraries. The loader has read the variable before. Without a starter this changes nothing.
void take_back_library_path();

}  // namespace starter
