#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

#include "muster/v1/job.pb.h"

namespace cli {

/// Estimates how long a training will go on, from the steps that were seen lately. The caller passes the time.
class TimeLeft {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Notes the job as it is now. A new attempt, or an earlier step than before, restarts the estimate.
  void see(const muster::v1::Job& job, Time now);
  /// The time until the last step. nullopt: the job is not in training, its last step is not known, or no step was
  /// seen. Before two steps were seen, the ranks' newest step time is used.
  std::optional<std::chrono::milliseconds> left() const;

 private:
  static constexpr std::chrono::seconds kWindow{120};
  static constexpr std::size_t kMostSamples = 1000;
  struct Sample {
    Time at;
    std::int64_t step;
  };
  std::deque<Sample> samples_;
  std::uint32_t attempt_ = 0;
  std::int64_t total_ = 0;
  double step_ms_ = 0;  // the step time of the slowest rank
  bool trains_ = false;
};

}  // namespace cli
