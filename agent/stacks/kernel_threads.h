#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace agent::stacks {

/// Threads of one process beyond this are only counted.
inline constexpr std::size_t kMostThreads = 512;

/// What the kernel tells of each thread of a process, a line each: its name, its state, the system call that it is in
/// with the file behind a descriptor, where it waits inside the kernel, and its processor time. The first line is the
/// main thread's. Empty: the process is gone.
std::string kernel_threads(pid_t pid);

/// "futex"; "call 512" of a number without a name here.
std::string syscall_name(long number);

/// Of a line of /proc/<pid>/task/<tid>/syscall: "in read of 7", "runs", "waits in no system call". `takes_descriptor`
/// gets the descriptor that the call works on; -1: none.
std::string syscall_text(std::string_view line, int& descriptor);

}  // namespace agent::stacks
