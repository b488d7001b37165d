#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "agent/protocol/rank_use.h"
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
/// What ranks use now. It is told on the socket alone, between the others, and replaces what was told before.
struct Used {
  std::map<std::uint32_t, RankUse> ranks;
  bool operator==(const Used&) const = default;
};
using Fact = std::variant<Started, Running, LaunchFailed, Exited, Ended, Used>;

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
