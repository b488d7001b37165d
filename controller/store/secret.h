#pragma once

#include <string>

namespace store {

/// 32 bytes from the kernel's random source, in hexadecimal. Throws Error if there is none.
std::string random_secret();

}  // namespace store
