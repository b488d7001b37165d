#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "net/address.h"
#include "net/crowd.h"
#include "net/door.h"

namespace net {

/// musterd does not start with fewer descriptors.
inline constexpr std::uint64_t kFewestDescriptors = 64;

/// How many connections each party may have open at once.
struct Shares {
  /// Connections without a valid token at the dashboard's port. The same number again may be closing.
  std::size_t strangers = 0;
  /// Connections without an accepted call at the gRPC port, see Gate.
  std::size_t waiting = 0;
  /// Command lines, scripts and browsers.
  std::size_t people = 0;
  /// On Slurm each rank's task has one. A rank that reports has one more: its worker tells by itself, and the agent
  /// tells for the program of a command. So the 16,416 that a limit of 20,000 files leaves are enough for 8,208 ranks
  /// on Slurm, whatever they run, and for 16,416 on musterd's machine.
  std::size_t ranks = 0;
};

/// The shares of a process with this limit of descriptors. A part is reserved for the process itself: store, logs,
/// supervisors, Slurm's commands.
Shares shares_of(std::uint64_t descriptors);

/// Who is at the other end of a connection.
enum class Party { kStranger, kPerson, kRank };

/// Every open connection of musterd's ports, and its party. As a door it is the dashboard's; Gate is the one of gRPC.
///
/// States of a connection: stranger -> person or rank (it showed a valid token) -> forgotten (it is closed).
/// Each party has a share of the connections, so that no party can use up the connections of another one. One user has
/// at most half of the share of people.
///
/// A stranger is shut down when its time is over, or when a new connection needs its share. The server of the
/// connection then reads the end of the stream and closes the socket.
///
/// A connection that shows a valid token while its party's share is used up is served, but stays among the strangers.
/// If the share of strangers is used up, the one that has been quiet longest is shut down, and its client connects
/// again.
///
/// A socket belongs to its server (gRPC closes its own sockets). This class only looks at it, by its number and the
/// kernel's cookie, which is unique to one socket. Thread-safe. The caller passes the time.
class Connections : public Door {
 public:
  using Clock = std::chrono::steady_clock;

  /// A stranger that has been quiet for this long may be shut down for a new connection.
  static constexpr std::chrono::milliseconds kGrace{500};
  /// As kGrace, while more connections wait for accept() than the share of strangers allows. A caller with a token
  /// needs a few milliseconds. A slower one is shut down, and connects again when the crowd is gone.
  static constexpr std::chrono::milliseconds kGraceInACrowd{15};
  /// As kGraceInACrowd, for a stranger that has sent nothing.
  static constexpr std::chrono::milliseconds kSilentInACrowd{5};
  /// As kGrace, for a stranger that waits for musterd: it has sent enough for a call, or has unread bytes.
  static constexpr std::chrono::seconds kOurTurn{5};
  /// How many bytes may contain a call. An HTTP/2 client's greeting alone has about 80 bytes.
  static constexpr std::uint64_t kCallBytes = 160;
  /// A connection must show a valid token within this time.
  static constexpr std::chrono::seconds kKnownWithin{60};

  explicit Connections(Shares shares) : shares_(shares) {}

  /// True if one more connection may be accepted now. If the share of strangers is used up, shuts down strangers whose
  /// time is over. `waiting`: how many connections wait for accept().
  bool make_room(Time now, std::size_t waiting = 0) override;
  /// Adds a socket that was just accepted. Call it before the socket is handed to its server, which may close it.
  void enter(int socket, Time now) override;

  /// Adds a connection that came through the gate and showed a valid token. `whose`: the user, for a person. Returns
  /// why there is no place for it; empty: it is in.
  std::string admit(int socket, Party party, const std::string& whose, Time now);

  /// The connection of this socket showed a valid token.
  void know(int socket, Party party, Time now);
  /// As above, for the connection from `peer` (in gRPC's form, "ipv4:127.0.0.1:53594") to `local_port`. Calls `valid`
  /// only if the connection is still a stranger. If `valid` is false, the stranger counts as answered.
  void know(std::uint16_t local_port, const std::string& peer, Party party, Time now,
            const std::function<bool()>& valid);

  /// The stranger's call was answered, and showed no valid token.
  void answered(int socket);

  /// Forgets closed connections and shuts down strangers after kKnownWithin. Does so at most once a second.
  void tidy(Time now) override;

  /// Thread-safe by itself.
  Crowd& crowd() { return crowd_; }

  /// How many wait for their first call at the gate, which notes it.
  void set_waiting(std::size_t count) { waiting_ = count; }

  struct Counts {
    std::size_t strangers = 0, waiting = 0, people = 0, ranks = 0, closing = 0;
  };
  Counts open() const;
  const Shares& shares() const { return shares_; }

 private:
  using Id = std::uint64_t;
  /// The peer's address and port, and the port here.
  using Ends = std::tuple<Address, std::uint16_t, std::uint16_t>;
  struct Entry {
    int socket = -1;
    Ends ends;
    Party party = Party::kStranger;
    bool is_valid = false;            // a stranger that showed a token while its party's share was used up
    bool is_answered = false;         // a stranger whose call was answered
    Time since{};                     // when it was accepted
    Time quiet_since{};               // neither side has sent a byte since then
    std::uint64_t said = 0;           // bytes that both sides had sent by quiet_since
    std::list<Id>::iterator place{};  // in strangers_
    std::string whose;                // of a person who came through the gate
  };

  static Id cookie_of(int socket);
  static std::optional<Ends> ends_of(int socket);
  /// None of one socket: the peer is gone already.
  std::optional<std::pair<Id, Entry>> entry_of(int socket, Time now) const;
  static std::optional<Ends> ends_of(std::uint16_t local_port, std::string_view peer);
  static bool is_open(Id id, int socket) { return cookie_of(socket) == id; }
  std::size_t& count(Party party) { return party == Party::kPerson ? people_ : ranks_; }
  std::size_t share(Party party) const { return party == Party::kPerson ? shares_.people : shares_.ranks; }

  void add(Id id, Entry entry);
  std::string why_full(Party party) const;
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
  std::map<Ends, Id> by_ends_;
  std::list<Id> strangers_;  // in order of arrival; showing a token moves a stranger to the end
  std::vector<std::pair<Id, int>> closing_;
  std::size_t people_ = 0, ranks_ = 0;
  std::unordered_map<std::string, std::size_t> persons_;  // whose -> how many connections
  std::atomic<std::size_t> waiting_{0};
  Crowd crowd_;
  Time tidied_{}, swept_{}, told_{};
};

/// Uses the shares that this process's limit of open files allows.
std::shared_ptr<Connections> connections_of_this_process();

}  // namespace net
