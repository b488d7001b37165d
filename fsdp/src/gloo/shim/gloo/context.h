#pragma once
// Replaces Gloo's context.h. LibTorch's header of ProcessGroupGloo holds pointers to these types. Only libtorch_cpu
// uses their contents.
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
