#pragma once

#include <stdexcept>

namespace base {

/// An error in something that a person has given: a flag, a file, a variable, a limit or data. The same try would fail
/// again. muster-worker exits with spec::kExitNeverRequeue, musterd with 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace base
