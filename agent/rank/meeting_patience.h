#pragma once

#include <algorithm>
#include <chrono>

namespace agent::rank {

/// How long a rank waits until it is told where the ranks meet. Ranks that don't come cost the others `limit`, as often
/// as the controller says that it does not know yet; while nobody answers, they wait `away_limit`: whoever is queued in
/// Slurm may be started while musterd is down. Each begins anew when the other state ends.
class MeetingPatience {
 public:
  using Clock = std::chrono::steady_clock;
  using Limit = std::chrono::milliseconds;

  static constexpr Limit kLimit{120'000};
  static constexpr Limit kAwayLimit{1'800'000};

  MeetingPatience(Limit limit, Limit away_limit, Clock::time_point now)
      : limit_(limit), away_limit_(away_limit), since_(now) {}

  /// The newest call has been answered, or has failed.
  void heard(bool answered, Clock::time_point now) {
    if (answered != answered_) since_ = now;
    answered_ = answered;
  }
  bool controller_is_away() const { return !answered_; }
  Limit limit() const { return answered_ ? limit_ : away_limit_; }
  /// 0: it is over.
  Limit left(Clock::time_point now) const {
    return std::max(Limit(0), limit() - std::chrono::duration_cast<Limit>(now - since_));
  }

 private:
  Limit limit_, away_limit_;
  Clock::time_point since_;
  bool answered_ = true;
};

}  // namespace agent::rank
