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
  std::uint32_t attempt = 0;  // 0: the newest, and following also those after it
  std::optional<std::uint32_t> rank;
  bool slurm = false;      // what Slurm and the lines before the ranks wrote, rather than the ranks
  std::uint32_t tail = 0;  // 0: all
  bool follow = false;
  bool json = false;
  bool timestamps = false;  // before each line, when it was seen to come
  bool tell_empty = false;  // say on stderr that there was nothing to print
};

/// Prints a job's log lines to `out`. Lines of several ranks say which one they are from, unless they do themselves; a
/// new attempt is announced on stderr. After a lost connection it goes on where it was.
StreamEnd print_logs(Client& client, const LogOptions& options, std::ostream& out);

}  // namespace cli
