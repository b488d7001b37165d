#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/process_table.h"

namespace agent::stacks {

/// A rank, by its first process. What that has started belongs to it too.
struct Rank {
  std::uint32_t rank = 0;
  pid_t pid = 0;
};

/// How long each way may take, all ranks together.
struct Patience {
  std::chrono::milliseconds own{1500};    // for what processes write of themselves
  std::chrono::milliseconds other{2000};  // for py-spy
};

/// The stack of each rank, in their order: frames of the processes that write them themselves, or that py-spy can read,
/// and what the kernel tells of every thread. A stopped process is not asked. UTF-8, at most
/// protocol::kMostStackBytes each. Empty: the rank has no process any more.
///
/// A process is asked by a signal that it takes for this alone (agent/protocol/files.h); nothing is sent to any other.
std::vector<std::string> take_stacks(const std::vector<Rank>& ranks, const Patience& patience = {});

/// Takes stacks for an agent, in a thread of its own that begins with the first request: heartbeats and news of ends
/// wait for none of it. Thread-safe.
class Taker {
 public:
  /// Called in that thread for each rank that has a stack. It may wait for a disk or the network, and must not throw.
  using Keep = std::function<void(std::uint64_t number, std::uint32_t rank, const std::string& text)>;
  explicit Taker(Keep keep) : keep_(std::move(keep)) {}
  /// Waits for the request under way, a few seconds at most.
  ~Taker();
  Taker(const Taker&) = delete;
  Taker& operator=(const Taker&) = delete;

  /// Returns at once. A number is answered once, however often it is asked; a newer one replaces one that waits.
  void ask(std::uint64_t number, std::vector<Rank> ranks);

 private:
  void run();

  const Keep keep_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::uint64_t newest_ = 0;  // that was asked for
  bool waits_ = false;        // it is not begun yet
  bool closed_ = false;
  std::vector<Rank> ranks_;
  std::thread thread_;
};

// Facts about the processes of a rank, mostly from the kernel.

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

/// The words for a line of /proc/<pid>/task/<tid>/syscall: "in read of 7", "in no system call", "in call 512" of a
/// number without a name here. `descriptor` gets the descriptor that the call works on; -1: none.
std::string syscall_text(std::string_view line, int& descriptor);

}  // namespace agent::stacks
