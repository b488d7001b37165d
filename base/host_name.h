#pragma once

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

namespace base {

/// This machine's name; empty: not known.
inline std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

/// The name under which reports name this node: Slurm's name for it, else the machine's name, else "unknown".
inline std::string node_name() {
  if (const char* node = std::getenv("SLURMD_NODENAME"); node != nullptr && *node != 0) return node;
  const auto name = host_name();
  return name.empty() ? "unknown" : name;
}

}  // namespace base
