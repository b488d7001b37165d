#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// What muster-supervisor and the local executor say to one another: the supervisor on a pipe while it starts, the
// executor on the supervisor's socket. A musterd that was updated talks to supervisors of older versions, so a word
// keeps its meaning, and a line that a supervisor does not know is passed over.
namespace agent::protocol {

/// Descriptors that the executor gives a supervisor: the attempt's lock, held; and the pipe for its report.
inline constexpr int kLockFd = 3;
inline constexpr int kReportFd = 4;

/// Why a supervisor started nothing.
enum class StartFailure : char {
  kForGood = '0',        // the next try would fail the same way
  kMayPass = '1',        // the next try may succeed
  kNoRoom = '2',         // no room for files
  kNoDescriptors = '3',  // no descriptor left
};

/// The supervisor's report: "pid <n>", then "running" or "failed <StartFailure> <reason>", a line each.
std::string pid_line(std::int64_t pid);
std::string running_line();
std::string failed_line(StartFailure kind, const std::string& reason);

struct StartReport {
  std::optional<std::int64_t> pid;  // of the supervisor in the background
  bool running = false;             // every rank's program was executed
  std::optional<StartFailure> failure;
  std::string reason;  // of the failure
};
/// Of as much of the report as has come.
StartReport parse_start_report(std::string_view text);

/// SIGTERM to every living rank's process group, once; SIGKILL after the grace, which a later stop may shorten.
struct StopCommand {
  std::chrono::milliseconds grace{0};
  std::string why = {};  // one word for the ranks' programs, see agent/watch/stop_file.h; empty: they are not told
  bool save = false;     // they are to save first
  std::optional<std::int64_t> at_step = {};  // they leave after this step; nullopt: at once
  bool operator==(const StopCommand&) const = default;
};
/// "at <step>" and "why <word>[ save]" if there are such, then "stop <grace in ms>": lines of their own, so that a
/// supervisor that does not know the first ones understands the last.
std::string to_lines(const StopCommand& command);

/// "stacks <number>": the stack of each living rank is to be taken (agent/protocol/stacks.h). A number is answered
/// once.
std::string stacks_line(std::uint64_t number);
std::optional<std::uint64_t> parse_stacks_line(std::string_view line);

/// Gathers a command from its lines.
class StopReader {
 public:
  /// The command that `line` completes, if it does. The first reason that comes stays.
  std::optional<StopCommand> take(std::string_view line);

 private:
  StopCommand command_;
};

}  // namespace agent::protocol
