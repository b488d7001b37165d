#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "muster/v1/job.pb.h"

namespace http {

/// A part of the ranks of a job's newest attempt. The dashboard asks only for the ranks in view.
struct RankRange {
  std::uint32_t from = 0;
  std::uint32_t limit = 0;
  /// Only ranks in this state. "slow": only slow ranks. Empty: all ranks.
  std::string show;
};

/// The answer to jobs/NUMBER/ranks.
///
///   {"attempt": 2, "total": 4096,              how many ranks `show` selects
///    "states": {"running": 4095, "missing": 1}, "slow": 0,    of all ranks
///    "ranks": [Rank, ...]}                      of these, at most `limit` ranks from place `from` on
///
/// The state "missing" means that the controller knows nothing of the rank yet.
nlohmann::ordered_json rank_page(const muster::v1::Job& job, const RankRange& range);

}  // namespace http
