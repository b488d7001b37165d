#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "agent/protocol/facts.h"
#include "agent/protocol/launch.h"
#include "base/fd.h"

namespace agent::protocol {

// The folder of one attempt. Others may keep files of their own there. Agents and musterd share:
//   launch.json           what to start; musterd writes it before the agents start
//   status.jsonl          the facts of the agent that has rank 0, one line each
//   status-<first>.jsonl  the facts of the agent whose first rank has this number
// and on musterd's own machine, where one agent has all ranks:
//   lock                  held (flock) by whoever starts the attempt, then by its agent until no rank is left
//   agent.log             the agent's stderr
inline constexpr const char* kLockFile = "lock";
inline constexpr const char* kAgentLog = "agent.log";

/// Throws std::system_error that names the folder.
base::Fd open_folder(const std::filesystem::path& folder);

/// Takes the attempt's lock; nothing if another open file holds it. The lock lasts as long as any copy of the
/// descriptor, copies of child processes included. Throws std::system_error when the lock cannot be asked for.
std::optional<base::Fd> try_lock(int folder);

/// launch.json; nothing if there is none. Throws std::runtime_error when it cannot be read or makes no sense.
std::optional<Launch> read_launch_in(int folder);

/// MUSTER_ATTEMPT_FOLDER of the attempt's ranks, as launch.json has it, also one that an earlier musterd has written;
/// empty: there is none. Throws std::runtime_error when the file cannot be read.
std::string attempt_mark_in(int folder);

/// The status file of an agent; nothing is known if there is none. Throws std::runtime_error when it cannot be read or
/// a whole line makes no sense: then nobody knows whether the ranks ran.
Status read_status(int folder, std::uint32_t first_rank = 0);

/// Throws std::system_error with errno and this text.
[[noreturn]] void throw_errno(const std::string& what);

// The words that an agent on musterd's own machine says on a pipe while it starts. The executor that has started the
// agent reads them.

/// Descriptors that the executor gives an agent: the attempt's lock, held; and the pipe for its report.
inline constexpr int kLockFd = 3;
inline constexpr int kReportFd = 4;

/// Why an agent started nothing.
enum class StartFailure : char {
  kForGood = '0',        // the next try would fail the same way
  kMayPass = '1',        // the next try may succeed
  kNoRoom = '2',         // no room for files
  kNoDescriptors = '3',  // no descriptor left
};

/// The agent's report: "pid <n>", then "running" or "failed <StartFailure> <reason>", a line each.
std::string pid_line(std::int64_t pid);
std::string running_line();
std::string failed_line(StartFailure kind, const std::string& reason);

struct StartReport {
  std::optional<std::int64_t> pid;  // of the agent in the background
  bool running = false;             // every rank's program was executed
  std::optional<StartFailure> failure;
  std::string reason;  // of the failure
};
/// Reads as much of the report as has come.
StartReport parse_start_report(std::string_view text);

}  // namespace agent::protocol
