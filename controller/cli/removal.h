#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/client.h"

namespace cli {

/// How `muster rm` and `muster prune` remove the jobs that they have chosen.
struct RemovalWishes {
  std::string command;  // "muster rm"; messages begin with it
  bool yes = false;     // do not ask for confirmation
  bool dry_run = false;
  bool json = false;
  /// True: a person named the jobs, so each job that cannot be removed is an error. False: such jobs are only counted.
  bool named = false;
};

/// Removes the jobs, and prints what was removed and how much space that frees. On a terminal asks for confirmation
/// first. Returns the exit code.
int remove_jobs(Client& client, const std::vector<std::int64_t>& jobs, const RemovalWishes& wishes);

/// The jobs that `muster prune` chooses.
struct PruneRule {
  std::optional<std::chrono::milliseconds> older_than = {};  // jobs that ended longer ago than this
  std::optional<std::uint32_t> keep_last = {};               // spare this number of the newest jobs of the rule
  std::string user = {};                                     // empty: jobs of all users
};

/// The jobs to remove. `jobs` have ended, and the newest comes first. Pure.
std::vector<std::int64_t> jobs_to_prune(const std::vector<muster::v1::Job>& jobs, const PruneRule& rule,
                                        std::int64_t now_ms);

}  // namespace cli
