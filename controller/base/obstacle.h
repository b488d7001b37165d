#pragma once

#include <string>

namespace runtime {

/// Why something does not start, and what to do.
struct Obstacle {
  std::string reason, action;
};

}  // namespace runtime
