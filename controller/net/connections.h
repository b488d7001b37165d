#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "net/shares.h"

namespace net {

/// Whose a connection is.
enum class Party { kStranger, kPerson, kRank };

/// Every open connection of musterd's ports, and whose it is.
///
/// States of a connection: stranger -> person or rank (a valid token was shown on it) -> forgotten (it is closed).
/// A stranger that has had its time, or whose place another needs, is shut down; whoever serves it then sees the end of
/// the connection and closes it. So strangers never take the place of people or ranks, nor these that of each other.
///
/// One that shows a valid token when its party's share is used up stays among the strangers. It is served; when places
/// are short, the one that has been quiet longest is shut down, and connects anew.
///
/// A socket belongs to whoever serves it (gRPC closes its own), so it is only looked at: by its number and the kernel's
/// cookie, which no other socket ever has. Thread-safe. Time is given by the caller.
class Connections {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  /// A stranger that has been quiet for so long may be shut down for another.
  static constexpr std::chrono::milliseconds kGrace{500};
  /// The same while more wait at the door than there are places. A caller with a token needs some milliseconds; one
  /// that was too slow connects again when the crowd has been seen off.
  static constexpr std::chrono::milliseconds kGraceInACrowd{15};
  /// The same of one that has not said anything.
  static constexpr std::chrono::milliseconds kSilentInACrowd{5};
  /// The same of one that waits for us: it has said so much that a call may be among it, or we have not read it yet.
  static constexpr std::chrono::seconds kOurTurn{5};
  /// More than an HTTP/2 client's greeting (about 80 bytes), less than a greeting and a call with a token.
  static constexpr std::uint64_t kCallBytes = 160;
  /// A valid token must be shown within this.
  static constexpr std::chrono::seconds kKnownWithin{60};

  explicit Connections(Shares shares) : shares_(shares) {}

  /// Whether one more may be accepted now. If the strangers' places are taken, shuts down those that have had their
  /// time. `waiting`: how many are at the door.
  bool make_room(Time now, std::size_t waiting = 0);
  /// Enters a socket that was just accepted, before anybody else may close it.
  void enter(int socket, Time now);

  /// A valid token was shown on the connection with this socket.
  void know(int socket, Party party, Time now);
  /// The same, of the connection from `peer` ("ipv4:127.0.0.1:53594", as gRPC calls it) to `local_port`. `valid` is
  /// asked only if the connection is a stranger's still. If it is false, nothing more is owed to that stranger.
  void know(std::uint16_t local_port, const std::string& peer, Party party, Time now,
            const std::function<bool()>& valid);

  /// A stranger has been answered, and showed no token.
  void answered(int socket);

  /// Forgets what is closed and shuts down strangers whose time is over; at most once a second.
  void tidy(Time now);

  struct Counts {
    std::size_t strangers = 0, people = 0, ranks = 0, closing = 0;
  };
  Counts open() const;
  const Shares& shares() const { return shares_; }

 private:
  using Id = std::uint64_t;
  using Ends = std::array<std::uint8_t, 20>;  // the peer's address (as IPv6) and port, and the port here
  struct HashEnds {
    std::size_t operator()(const Ends& ends) const;
  };
  struct Entry {
    int socket = -1;
    Ends ends{};
    Party party = Party::kStranger;
    bool is_valid = false;            // has shown a token, but its party's share is used up
    bool is_answered = false;         // and is a stranger still
    Time since{};                     // entered
    Time quiet_since{};               // nothing was said since, by either side
    std::uint64_t said = 0;           // bytes until then, of both
    std::list<Id>::iterator place{};  // in strangers_
  };

  static Id cookie_of(int socket);
  static bool ends_of(int socket, Ends& ends);
  static bool ends_of(std::uint16_t local_port, const std::string& peer, Ends& ends);
  static bool is_open(Id id, int socket) { return cookie_of(socket) == id; }
  std::size_t& count(Party party) { return party == Party::kPerson ? people_ : ranks_; }
  std::size_t share(Party party) const { return party == Party::kPerson ? shares_.people : shares_.ranks; }

  void promote(Id id, Entry& entry, Party party, Time now);
  void shut_down(Id id);
  bool had_its_time(Entry& entry, Time now, bool crowd) const;
  void see_off(Time now, std::size_t waiting);
  void forget(Id id);
  void forget_closed(Time now);
  void forget_shut_down();

  const Shares shares_;
  mutable std::mutex mutex_;
  std::unordered_map<Id, Entry> entries_;
  std::unordered_map<Ends, Id, HashEnds> by_ends_;
  std::list<Id> strangers_;  // those with a token that spoke last at the end
  std::vector<std::pair<Id, int>> closing_;
  std::size_t people_ = 0, ranks_ = 0;
  Time tidied_{}, swept_{}, told_{};
};

/// With the shares that the descriptors of this process allow.
std::shared_ptr<Connections> connections_of_this_process();

}  // namespace net
