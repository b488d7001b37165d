#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// The words that an agent on musterd's own machine says on a pipe while it starts. The executor that has started the
// agent reads them.
namespace agent::protocol {

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
