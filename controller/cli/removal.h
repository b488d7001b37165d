#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/client.h"

namespace cli {

/// What `muster rm` and `muster prune` do with jobs that they have chosen.
struct RemovalWishes {
  std::string command;  // "muster rm", begins what is told
  bool yes = false;     // do not ask, though there is a terminal
  bool dry_run = false;
  bool json = false;
  /// The person named these jobs: each that cannot be removed is trouble. Otherwise they are counted.
  bool named = false;
};

/// Removes them, asking before where a person sits at a terminal, and tells what was removed and how much room that
/// frees. Returns the exit code.
int remove_jobs(Client& client, const std::vector<std::int64_t>& jobs, const RemovalWishes& wishes);

/// Which jobs `muster prune` takes.
struct PruneRule {
  std::optional<std::chrono::milliseconds> older_than = {};  // ended longer ago than this
  std::optional<std::uint32_t> keep_last = {};               // not the newest so many of those that the rule is about
  std::string user = {};                                     // empty: everybody's
};

/// Of jobs that have ended, newest first: those that go. Pure.
std::vector<std::int64_t> jobs_to_prune(const std::vector<muster::v1::Job>& jobs, const PruneRule& rule,
                                        std::int64_t now_ms);

}  // namespace cli
