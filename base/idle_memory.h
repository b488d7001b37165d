#pragma once

namespace base {

/// Gives back to the kernel what this process keeps without use: memory that was freed, and pages of the program and
/// its libraries that were read from their files. A page that is needed again comes back from the kernel's cache of
/// files, within microseconds, or from disk where the kernel needed the room meanwhile. So only a process at rest calls
/// it.
void give_back_idle_memory();

}  // namespace base
