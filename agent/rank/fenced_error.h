#pragma once

#include <stdexcept>

namespace agent::rank {

/// A newer attempt owns the job's checkpoint folder (spec::kExitFenced).
class FencedError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace agent::rank
