#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

#include "muster/v1/job.pb.h"

namespace cli {

/// How long a training that is being watched goes on, from the steps that were seen lately. No clock: times are given.
class TimeLeft {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// A job as it is now. A new attempt, or one that steps back, begins anew.
  void see(const muster::v1::Job& job, Time now);
  /// Until the last step; nullopt: it is not in training, has no known end, or has not been seen to move. Before two
  /// steps have been seen, what its ranks say of their newest step is taken.
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
  double step_ms_ = 0;  // of the slowest rank
  bool trains_ = false;
};

}  // namespace cli
