#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "muster/v1/job.pb.h"

namespace http {

/// A part of the ranks of a job's newest attempt: a page shows only those that are in view.
struct RankRange {
  std::uint32_t from = 0;
  std::uint32_t limit = 0;
  /// Only ranks in this state; "slow": only those that are slow; empty: all.
  std::string show;
};

/// What jobs/NUMBER/ranks answers.
///
///   {"attempt": 2, "total": 4096,              of the ranks that `show` asks for
///    "states": {"running": 4095, "missing": 1}, "slow": 0,    of all ranks
///    "ranks": [Rank, ...]}                      from the `from`-th of them on, at most `limit`
///
/// A rank of which the controller knows nothing yet has the state "missing".
nlohmann::ordered_json rank_page(const muster::v1::Job& job, const RankRange& range);

}  // namespace http
