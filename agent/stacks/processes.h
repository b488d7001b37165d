#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/process_table.h"

namespace agent::stacks {

/// Processes of one rank beyond this are left out.
inline constexpr std::size_t kMostProcesses = 64;

/// The process and all that descend from it in `all`, those nearest to it first. The dead are left out.
std::vector<base::ProcessStat> with_descendants(pid_t pid, const std::vector<base::ProcessStat>& all);

/// The first bytes of a file below /proc; empty: it can't be read.
std::string read_proc(const std::filesystem::path& path, std::size_t most);

/// The command line in one line of at most 200 bytes; the program's name of a process without one.
std::string command_of(pid_t pid);

/// True if a Python interpreter runs in the process.
bool is_python(pid_t pid);

/// The file in memory into which the process writes its stack (agent/protocol/files.h), as a path below /proc.
/// nullopt: the process has none of its own, or no handler for the signal.
std::optional<std::string> stack_memory(pid_t pid);

/// The thread of the process that answers (agent/protocol/files.h). nullopt: it has none.
std::optional<pid_t> stack_thread(pid_t pid);

/// Threads of one process beyond this are only counted.
inline constexpr std::size_t kMostThreads = 512;

/// Facts that the kernel tells of each thread of a process, a line each: its name, its state, the system call that it
/// is in with the file behind a descriptor, where it waits inside the kernel, and its processor time. The first line is
/// the main thread's. Empty: the process is gone.
std::string kernel_threads(pid_t pid);

/// "futex"; "call 512" of a number without a name here.
std::string syscall_name(long number);

/// The words for a line of /proc/<pid>/task/<tid>/syscall: "in read of 7", "runs", "waits in no system call".
/// `takes_descriptor` gets the descriptor that the call works on; -1: none.
std::string syscall_text(std::string_view line, int& descriptor);

}  // namespace agent::stacks
