#pragma once

#include <stdexcept>

namespace worker {

/// The run file, the environment or the data is wrong: trying again can't help (contract::kExitNeverRequeue).
class UsageError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A newer attempt owns the job's checkpoint folder (contract::kExitFenced).
class FencedError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace worker
