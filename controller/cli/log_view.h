#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "cli/contact.h"

namespace cli {

struct LogOptions {
  std::int64_t job = 0;
  std::uint32_t attempt = 0;  // 0: the newest; with follow, also later ones
  std::optional<std::uint32_t> rank;
  bool slurm = false;      // print Slurm's log, not the ranks' logs
  std::uint32_t tail = 0;  // 0: all lines
  bool follow = false;
  bool json = false;
  bool timestamps = false;  // print before each line when it was seen
  bool tell_empty = false;  // say on stderr if the log is empty
};

/// Prints a job's log lines to `out`. If there are several ranks, each line begins with its rank, unless it does so
/// itself. A new attempt is announced on stderr. After a lost connection the log goes on where it stopped.
StreamEnd print_logs(Client& client, const LogOptions& options, std::ostream& out);

}  // namespace cli
