#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <random>
#include <unordered_map>
#include <vector>

#include "net/address.h"

namespace net {

/// Which of the connections without an accepted call may stay.
///
/// Everybody is let in. If that is one too many, somebody leaves:
///   1. who has been here longest, if that is longer than kFairTime: a caller with a token needs some milliseconds;
///   2. else one of a network from which no call has been accepted, at random of the network that has most here;
///   3. else, if all are of known networks, one of the network that has most here, at random.
/// At random, since whoever comes ten thousand times a second would push out everybody by order of arrival, whichever
/// end is dropped: a caller who needs 10 ms among 5,000 newcomers a second and 96 places stays with a chance of 0.6,
/// and comes again. Whoever is here longer than kPatience leaves in any case.
///
/// Pure: the caller passes the time, and closes connections. Not thread-safe.
class WaitingRoom {
 public:
  using Id = std::uint64_t;
  using Time = std::chrono::steady_clock::time_point;

  static constexpr std::chrono::milliseconds kFairTime{300};
  static constexpr std::chrono::seconds kPatience{10};
  /// For how long a network stays known, and how many are.
  static constexpr std::chrono::hours kKnownFor{24};
  static constexpr std::size_t kMostKnown = 8192;

  explicit WaitingRoom(std::size_t places, std::uint32_t seed = 1) : places_(places), chance_(seed) {}

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
  std::minstd_rand chance_;
  std::unordered_map<Id, Entry> here_;
  std::list<Id> turns_;  // in the order of arrival
  std::map<Address, Network> networks_;
  std::map<Address, Time> known_;
};

}  // namespace net
