#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/types.h"
#include "os/fd.h"

namespace runtime::local {

/// A process that cannot be mistaken for a later one with the same id.
struct RankProcess {
  std::int64_t pid = 0;
  std::uint64_t start_time = 0;  // clock ticks since boot, field 22 of /proc/<pid>/stat
  bool operator==(const RankProcess&) const = default;
};

// What a supervisor records and tells, in this order: Started, then Running or LaunchFailed, an Exited each rank,
// Ended.

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
  core::RankNumber rank = 0;
  core::ExitStatus exit;
  bool out_of_memory = false;
  std::int64_t at_ms = 0;  // since 1970 in UTC
  std::string error;       // the program's own words; empty: it left none
  bool operator==(const Exited&) const = default;
};
/// No process of the attempt is left.
struct Ended {
  bool operator==(const Ended&) const = default;
};
using Fact = std::variant<Started, Running, LaunchFailed, Exited, Ended>;

/// One line of JSON with its newline. Text that is not UTF-8 is written with replacement characters.
std::string to_line(const Fact& fact);
/// The reverse, without newline; nothing for a kind of a later version. Throws std::runtime_error for anything else.
std::optional<Fact> parse_fact(std::string_view line);

/// All that is known from a folder's status.jsonl.
struct Status {
  std::optional<Started> started;
  bool running = false;
  std::optional<LaunchFailed> failed;
  std::map<core::RankNumber, Exited> exits;
  bool ended = false;
};
void fold(Status& status, const Fact& fact);

/// Ignores an unfinished last line (a crash while writing). Throws std::runtime_error when the file cannot be read or
/// holds a whole line that makes no sense: then nobody knows whether the attempt ran.
Status read_status(int folder);

/// Appends to status.jsonl. One writer, the holder of the folder's lock.
class StatusLog {
 public:
  /// Begins an empty file with room for `ranks` ranks' facts set aside, so that a disk that fills up later does not
  /// lose them. Throws std::system_error.
  StatusLog(int folder, std::size_t ranks);

  /// Adds lines; write() and flush() write them.
  void add(const std::string& line) { lines_ += line; }
  /// Hands every line to the system, which keeps it through the death of this process, though not of the machine.
  /// False: the disk refused (errno says why).
  bool write();
  /// True when every line is on disk, which may take the disk its time. False: the disk refused (errno says why); call
  /// it again later.
  bool flush();
  /// Empties the file, as far as the disk allows: nothing was started after all.
  void erase();

 private:
  Fd file_;
  std::string lines_;
  std::size_t written_ = 0;
  bool synced_ = true;
};

}  // namespace runtime::local
