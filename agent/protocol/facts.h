#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "spec/exit_codes.h"

namespace agent::protocol {

/// The status file of an agent, in the attempt's folder: every fact, one line each. The agent writes it, and tells
/// musterd the same through its link; musterd reads the file when it was away, or when a message was lost. An agent
/// lives through an update of musterd, so lines keep their meaning from version to version, and a reader skips facts
/// that it does not know.
///
/// "status.jsonl" for the agent whose first rank is 0, which has all ranks of an attempt on musterd's own machine;
/// "status-3.jsonl" for the one whose first rank is 3.
std::string status_file(std::uint32_t first_rank);
/// True for a name that status_file() gives.
bool is_status_file(std::string_view name);

/// A process that cannot be mistaken for a later one with the same id.
struct RankProcess {
  std::int64_t pid = 0;
  std::uint64_t start_time = 0;  // clock ticks since boot, field 22 of /proc/<pid>/stat
  bool operator==(const RankProcess&) const = default;
};

// An agent's facts come in this order: Started, then Running or LaunchFailed, an Exited for each rank, Ended. An agent
// that starts nothing tells LaunchFailed alone.

/// Where one agent has all ranks it is on disk before any rank runs a line of the user's program: from here on the
/// attempt is never started again.
struct Started {
  std::string boot_id;
  std::string node;
  std::int64_t session = 0;        // of the agent; of all that the ranks start, on musterd's own machine
  std::vector<RankProcess> ranks;  // from the agent's first one on
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
  std::string node = {};
  bool operator==(const LaunchFailed&) const = default;
};
struct Exited {
  std::uint32_t rank = 0;
  spec::ExitStatus exit;
  bool out_of_memory = false;          // the kernel killed it for memory
  std::int64_t at_ms = 0;              // since 1970 in UTC, by the node's clock
  std::string error;                   // the program's own words; empty: it left none
  std::vector<int> signals_seen = {};  // signals that the agent got from outside, in order
  bool step_lost = false;              // Slurm has lost sight of the agent, which has killed the rank
  bool operator==(const Exited&) const = default;
};
/// No process of the agent's ranks is left.
struct Ended {
  bool operator==(const Ended&) const = default;
};
using Fact = std::variant<Started, Running, LaunchFailed, Exited, Ended>;

/// One line of JSON with its newline. Text that is not UTF-8 is written with replacement characters.
std::string to_line(const Fact& fact);
/// The reverse, without newline; nothing for a kind of a later version. Throws std::runtime_error for anything else.
std::optional<Fact> parse_fact(std::string_view line);

/// All that is known of an agent's ranks from its facts.
struct Status {
  std::optional<Started> started;
  bool running = false;
  std::optional<LaunchFailed> failed;
  std::map<std::uint32_t, Exited> exits;
  std::vector<std::uint32_t> ends;  // the ranks of `exits`, in the order of their ends
  bool ended = false;
};
void fold(Status& status, const Fact& fact);

/// The text of a whole status file. An unfinished last line (a crash while writing) does not count. Throws
/// std::runtime_error when a whole line makes no sense: then nobody knows whether the ranks ran.
Status parse_status(std::string_view text);

}  // namespace agent::protocol
