#pragma once

#include <stdexcept>

namespace base {

/// What a person has given is wrong: a flag, a file, a variable, a limit or data. The same try would fail again.
/// muster-worker exits with spec::kExitNeverRequeue, musterd with 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace base
