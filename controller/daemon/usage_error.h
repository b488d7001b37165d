#pragma once

#include <stdexcept>

namespace musterd {

/// An error in how musterd was started: other flags, variables or limits repair it. musterd exits with 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace musterd
