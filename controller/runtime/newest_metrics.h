#pragma once

#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "runtime/rank_board.h"
#include "store/store.h"

namespace runtime {

/// The newest step of a job: from the ranks' own word where they are heard, else looked up. Remembers kEndedJobs of
/// those that have ended. Thread-safe.
class NewestMetrics {
 public:
  static constexpr std::size_t kEndedJobs = 2048;
  NewestMetrics(store::Store& store, RankBoard& board) : store_(store), board_(board) {}

  /// `newest_attempt` 0: none yet. Throws store::Error.
  std::optional<store::MetricRow> get(core::JobId job, std::int64_t version, bool ended,
                                      core::AttemptNumber newest_attempt);

 private:
  struct Known {
    std::int64_t version = 0;
    std::optional<store::MetricRow> row;
  };
  store::Store& store_;
  RankBoard& board_;
  std::mutex mutex_;
  std::unordered_map<core::JobId, Known> ended_;
  std::deque<core::JobId> order_;
};

}  // namespace runtime
