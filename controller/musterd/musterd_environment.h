#pragma once

#include <cstdlib>
#include <string>

namespace musterd {

/// The variable's value; empty: it is not set.
inline std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace musterd
