#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>

namespace agent::rank {

/// How long to wait after each failure: `first`, then twice as long each time, at most `most`.
class Backoff {
 public:
  Backoff(std::chrono::milliseconds first, std::chrono::milliseconds most) : first_(first), most_(most) {}

  /// Between half of the wait and all of it, so that the ranks of a controller that is back do not come all at once.
  std::chrono::milliseconds next() {
    const auto now = wait_;
    wait_ = std::min(wait_ * 2, most_);
    return std::chrono::milliseconds(
        std::uniform_int_distribution<std::int64_t>(now.count() / 2, now.count())(random_));
  }
  void reset() { wait_ = first_; }

 private:
  std::chrono::milliseconds first_, most_;
  std::chrono::milliseconds wait_ = first_;
  std::minstd_rand random_{std::random_device()()};
};

}  // namespace agent::rank
