#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace musterd {

/// An error in how musterd was started: other flags, variables or limits repair it. musterd exits with 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The variable's value; empty: it is not set.
inline std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace musterd
