#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "fd.h"
#include "slurm/command.h"

namespace slurm {

/// A program that has been started: the leader of its own process group, not yet reaped.
struct Child {
  pid_t pid = -1;
  Fd out, err;          // our ends of its stdout and stderr, not blocking
  Fd exited;            // readable once it has ended; invalid where the kernel has no such thing
  std::string why_not;  // nothing was started
};

/// PATH where none is set.
inline constexpr const char* kPlainPath = "/usr/local/bin:/usr/bin:/bin";
/// A program by its name, found as a shell would with our own PATH.
std::optional<std::string> find_in_path(const std::string& name);

/// Starts the program, with this soft limit of open files (0: ours). Touches no lock or memory that another thread may
/// hold between fork and exec.
Child start_child(const Command& command, bool dies_with_us, std::uint64_t open_files);

}  // namespace slurm
