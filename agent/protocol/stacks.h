#pragma once

#include <signal.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

// How the stack of a rank comes from its processes to the agent beside it, and from there to people.
//
// A process that can write its own stack has a handler for kStackSignal, and a file in memory (memfd_create) whose name
// is kStackMemory with the process's own number behind it. The agent finds the file below /proc/<pid>/fd, empties it,
// sends the signal to that process alone, and there to the thread named kStackThread if there is one, so that no system
// call of another thread is interrupted, and reads what appears. A program of Python that has written nothing after a
// while is asked a second time: then its interpreter's lock is kept by a thread that hangs. A forked child has the file
// too, but the name holds its parent's number, so the child is never asked. The signal's default is to be ignored: a
// process that has lost its handler by then, by exec for one, does not notice it.
//
// The text of a stack has a section for each process of the rank, its first process first: a line of section_head(),
// and lines as the one who took it writes them.
namespace agent::protocol {

inline constexpr int kStackSignal = SIGURG;
inline constexpr const char* kStackMemory = "muster-stack-";
inline constexpr std::string_view kStackThread = "muster-stacks";
/// The most of a rank's text. What is longer ends with kStackCut.
inline constexpr std::size_t kMostStackBytes = std::size_t{256} << 10;
inline constexpr std::string_view kStackCut = "... cut here: the text of a rank has at most 256 KiB\n";

/// Who has taken the stack of a process.
inline constexpr std::string_view kByFaulthandler = "frames of Python, by its faulthandler";
inline constexpr std::string_view kByPySpy = "frames of Python, by py-spy";
inline constexpr std::string_view kByWorker = "frames of each thread, by muster-worker";
inline constexpr std::string_view kByKernel = "state of each thread, by the kernel";

inline constexpr std::string_view kSectionMark = "== process ";
inline constexpr std::string_view kSectionBy = " == ";
/// "== process 41 (python3 train.py) == frames of Python, by py-spy", with the end of the line.
inline std::string section_head(std::int64_t pid, const std::string& command, std::string_view by) {
  return std::string(kSectionMark) + std::to_string(pid) + " (" + command + ")" + std::string(kSectionBy) +
         std::string(by) + "\n";
}

/// <attempt>/stacks/<number>/rank-<r>.txt, and beside it what kStackSetFile tells of them.
inline constexpr const char* kStacksFolder = "stacks";
inline constexpr const char* kStackSetFile = "set.json";
inline std::filesystem::path stack_folder(const std::filesystem::path& attempt, std::uint64_t number) {
  return attempt / kStacksFolder / std::to_string(number);
}
inline std::string stack_file_name(std::uint32_t rank) {
  return "rank-" + std::to_string(rank) + ".txt";
}

}  // namespace agent::protocol
