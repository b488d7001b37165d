#pragma once

#include <string>

namespace starter {

/// Lets the program that this process becomes find libraries in these folders first, by LD_LIBRARY_PATH.
void lend_library_path(const std::string& folders);

/// The first act of a program that may have a starter: its variables are the caller's again, so what it starts finds
/// the caller's libraries. The loader has read the variable before. Without a starter this changes nothing.
void take_back_library_path();

}  // namespace starter
