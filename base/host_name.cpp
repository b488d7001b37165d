#include "base/host_name.h"

#include <unistd.h>

#include <array>
#include <cstdlib>

namespace base {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string node_name() {
  if (const char* node = std::getenv("SLURMD_NODENAME"); node != nullptr && *node != 0) return node;
  const auto name = host_name();
  return name.empty() ? "unknown" : name;
}

}  // namespace base
