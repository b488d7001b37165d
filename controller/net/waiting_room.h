#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <unordered_map>
#include <utility>
#include <vector>

#include "controller/net/address.h"
#include "controller/net/known_networks.h"

namespace net {

/// Which of the connections without an accepted call, or without a whole request, may stay.
///
/// Everybody is let in. If that is one too many, somebody leaves:
///   1. who has been here longest, if that is longer than kFairTime: a caller with a token needs some milliseconds;
///   2. else one of a network from which no token has come (KnownNetworks), at random of the one that has most here;
///   3. else, if all are of known networks, one of the network that has most here, at random.
/// At random, since whoever comes ten thousand times a second would push out everybody by order of arrival, whichever
/// end is dropped: a caller who needs 10 ms among 5,000 newcomers a second and 96 places stays with a chance of 0.6,
/// and comes again. Whoever is here longer than the port's patience leaves in any case. Time is counted from the
/// arrival, whatever is said meanwhile.
///
/// Pure: the caller passes the time, and closes connections. Not thread-safe.
class WaitingRoom {
 public:
  using Id = std::uint64_t;
  using Time = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::milliseconds kFairTime{300};

  WaitingRoom(std::size_t places, std::chrono::milliseconds patience, std::shared_ptr<KnownNetworks> known,
              std::uint32_t seed = 1)
      : places_(places), patience_(patience), known_(std::move(known)), chance_(seed) {}

  /// A connection comes in. Returns the one that has to leave, if one has; it may be the same.
  std::optional<Id> enter(Id id, const Address& from, Time now);
  /// Somebody leaves, or has left already.
  void leave(Id id);
  /// A call from this address was accepted.
  void know(const Address& address, Time now);
  /// Those whose patience is over. They have left when this returns.
  std::vector<Id> overdue(Time now);
  std::size_t size() const { return here_.size(); }
  std::size_t places() const { return places_; }

 private:
  struct Entry {
    Address network{};
    Time since{};
    std::list<Id>::iterator turn{};
    std::size_t seat = 0;  // in its network
  };
  struct Network {
    std::vector<Id> ids;
    bool is_known = false;
  };

  Id victim(Time now);

  const std::size_t places_;
  const std::chrono::milliseconds patience_;
  const std::shared_ptr<KnownNetworks> known_;
  std::minstd_rand chance_;
  std::unordered_map<Id, Entry> here_;
  std::list<Id> turns_;  // in the order of arrival
  std::map<Address, Network> networks_;
};

}  // namespace net
