#pragma once
// Stands in for Gloo's context.h: LibTorch's header of ProcessGroupGloo holds pointers to these, and only libtorch_cpu
// looks inside.
#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace transport {
class UnboundBuffer;
}

}  // namespace gloo
