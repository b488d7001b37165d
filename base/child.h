#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/command.h"
#include "base/fd.h"

namespace base {

/// A started program. It leads its own process group and has not been reaped.
struct Child {
  pid_t pid = -1;
  Fd out, err;          // the read ends of its stdout and stderr, non-blocking
  Fd exited;            // readable once the child has ended; invalid where the kernel has no pidfd
  std::string why_not;  // why nothing was started; otherwise empty
};

/// The PATH used when none is set.
inline constexpr const char* kPlainPath = "/usr/local/bin:/usr/bin:/bin";

/// Starts the program with this soft limit of open files (0: the limit of this process). Between fork and exec it
/// touches no lock or memory that another thread may hold.
Child start_child(const Command& command, bool dies_with_us, std::uint64_t open_files);

}  // namespace base
