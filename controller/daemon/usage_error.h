#pragma once

#include <stdexcept>

namespace musterd {

/// What the one who started musterd can mend by starting it in another way; exit code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace musterd
