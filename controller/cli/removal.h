#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "muster/v1/job.pb.h"

namespace cli {

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
