#pragma once

#include <string>

namespace base {

/// This machine's name; empty: not known.
std::string host_name();

/// The name under which reports name this node: Slurm's name for it, else the machine's name, else "unknown".
std::string node_name();

}  // namespace base
