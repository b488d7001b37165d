#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>

namespace agent::rank {

/// A TCP address: a host name or a numeric address without brackets, and a port in 1..65535.
struct Endpoint {
  std::string host;
  std::uint16_t port = 0;

  bool operator==(const Endpoint&) const = default;
};

/// "host:port"; a host that holds a colon (IPv6) comes in brackets.
std::string to_string(const Endpoint& endpoint);

/// Reads "host:port" or "[v6]:port". Throws std::invalid_argument that quotes the text and says what is wanted.
Endpoint parse_endpoint(std::string_view text);

/// Where the controller is: as it was told at the start of the attempt, and the file that tells where it is now, see
/// agent/protocol/controller_place.h. Empty: there is no such file.
struct ControllerPlace {
  Endpoint told;
  std::string file = {};
};

/// This machine's numeric address on the route towards `peer`; 127.0.0.1 when there is no route or `peer` does not
/// resolve. Sends nothing. Other nodes can reach it even where node names don't resolve.
std::string own_address_towards(const Endpoint& peer);

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
