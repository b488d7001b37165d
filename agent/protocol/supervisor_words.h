#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "agent/protocol/files.h"
#include "spec/exit_codes.h"

namespace agent::protocol {

/// <attempt>/status.jsonl of a local attempt: every fact, one line each. The supervisor writes it and tells the same
/// lines on its socket; the local executor reads both. A supervisor lives through an update of musterd, so lines keep
/// their meaning from version to version, and a reader skips facts that it does not know.
inline constexpr const char* kStatusFile = "status.jsonl";

/// A process that cannot be mistaken for a later one with the same id.
struct RankProcess {
  std::int64_t pid = 0;
  std::uint64_t start_time = 0;  // clock ticks since boot, field 22 of /proc/<pid>/stat
  bool operator==(const RankProcess&) const = default;
};

// A supervisor's facts come in this order: Started, then Running or LaunchFailed, an Exited for each rank, Ended.

/// On disk before any rank runs a line of the user's program: from here on the attempt is never started again.
struct Started {
  std::string boot_id;
  std::string node;
  std::int64_t session = 0;  // of the supervisor and all that the ranks start
  std::vector<RankProcess> ranks;
  bool operator==(const Started&) const = default;
};
/// Every rank's program was executed.
struct Running {
  bool operator==(const Running&) const = default;
};
/// Some rank's program could not be executed; the others were killed.
struct LaunchFailed {
  std::string reason;
  bool retryable = true;
  bool operator==(const LaunchFailed&) const = default;
};
struct Exited {
  std::uint32_t rank = 0;
  spec::ExitStatus exit;
  bool out_of_memory = false;
  std::int64_t at_ms = 0;  // since 1970 in UTC
  std::string error;       // the program's own words; empty: it left none
  bool operator==(const Exited&) const = default;
};
/// No process of the attempt is left.
struct Ended {
  bool operator==(const Ended&) const = default;
};
/// Resources that ranks use now. A Used is told on the socket alone, between the others, and replaces the one before.
struct Used {
  std::map<std::uint32_t, RankUse> ranks;
  bool operator==(const Used&) const = default;
};
/// Every rank's process has ended, and the news of an end waits: for reports that the controller is taking, or for what
/// a rank has left behind. Told on the socket alone, every kHoldsEvery: a supervisor that says so does its work.
struct Holds {
  bool operator==(const Holds&) const = default;
};
inline constexpr std::chrono::milliseconds kHoldsEvery{500};
using Fact = std::variant<Started, Running, LaunchFailed, Exited, Ended, Used, Holds>;

/// One line of JSON with its newline. Text that is not UTF-8 is written with replacement characters.
std::string to_line(const Fact& fact);
/// The reverse, without newline; nothing for a kind of a later version. Throws std::runtime_error for anything else.
std::optional<Fact> parse_fact(std::string_view line);

/// All that is known of an attempt from its facts.
struct Status {
  std::optional<Started> started;
  bool running = false;
  std::optional<LaunchFailed> failed;
  std::map<std::uint32_t, Exited> exits;
  bool ended = false;
};
void fold(Status& status, const Fact& fact);

/// The text of a whole status file. An unfinished last line (a crash while writing) does not count. Throws
/// std::runtime_error when a whole line makes no sense: then nobody knows whether the attempt ran.
Status parse_status(std::string_view text);

}  // namespace agent::protocol

// Words that muster-supervisor and the local executor say to one another: the supervisor on a pipe while it starts, the
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
/// Reads as much of the report as has come.
StartReport parse_start_report(std::string_view text);

/// SIGTERM to every living rank's process group, once; SIGKILL after the grace, which a later stop may shorten.
struct StopCommand {
  std::chrono::milliseconds grace{0};
  std::string why = {};  // one word for the ranks' programs, see agent/watch/agent_files.h; empty: they are not told
  bool save = false;     // they are to save first
  std::optional<std::int64_t> at_step = {};  // they leave after this step; nullopt: at once
  bool operator==(const StopCommand&) const = default;
};
/// "at <step>" and "why <word>[ save]" if there are such, then "stop <grace in ms>": lines of their own, so that a
/// supervisor that does not know the first ones understands the last.
std::string to_lines(const StopCommand& command);

/// "stacks <number>": the stack of each living rank is to be taken (agent/protocol/files.h). A number is answered
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
