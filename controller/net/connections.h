#pragma once

#include <algorithm>
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

#include "controller/net/address.h"
#include "controller/net/crowd.h"

namespace net {

/// musterd does not start with fewer descriptors.
inline constexpr std::uint64_t kFewestDescriptors = 64;

/// How many connections each party may have open at once.
struct Shares {
  /// Connections with a request and without a valid token, at the dashboard's port. The same number again may be
  /// closing.
  std::size_t strangers = 0;
  /// Connections without an accepted call at the gRPC port, see Gate.
  std::size_t waiting = 0;
  /// Command lines, scripts and browsers.
  std::size_t people = 0;
  /// On Slurm each rank's task has one. A rank that reports has one more: its worker tells by itself, and the agent
  /// tells for the program of a command. So the 16,416 that a limit of 20,000 files leaves are enough for 8,208 ranks
  /// on Slurm, whatever they run, and for 16,416 on musterd's machine.
  std::size_t ranks = 0;
  /// Connections without a whole request at the dashboard's port, see HttpGate.
  std::size_t asking = 0;

  std::size_t at_the_door(Port port) const { return port == Port::kGrpc ? waiting : asking; }
};

/// The shares of a process with this limit of descriptors. A part is reserved for the process itself: store, logs,
/// supervisors, Slurm's commands.
Shares shares_of(std::uint64_t descriptors);

/// Who is at the other end of a connection.
enum class Party { kStranger, kPerson, kRank };

/// Who showed a valid token on a connection, and under which name it is counted.
struct Caller {
  Port port = Port::kGrpc;
  Party party = Party::kPerson;
  std::string whose;        // a person's name or address; of a rank its attempt; empty: it is not counted
  std::uint32_t ranks = 0;  // of a rank: how many its attempt has; 0: nobody knows yet
};

/// Every connection that the two servers of musterd have, and its party. Who has no call or request yet is at an
/// Entrance, and not here.
///
/// States of a connection: stranger -> person or rank (it showed a valid token) -> forgotten (it is closed).
/// Each party has a share of the connections, so that no party can use up the connections of another one. One user has
/// at most half of the share of people. While the share of ranks is used up, attempts that have more than kOfARank
/// connections a rank give way: one of the attempt that has most a rank is shut down, the newest, for one of another
/// attempt, and that attempt's own further ones are refused.
///
/// A stranger has a request at the dashboard, and no token. Its time is counted from what happened to it: it came with
/// the headers of a request, its request was whole, it was answered. Bytes that trickle in between give it no time. A
/// stranger whose time is over is shut down when a new one needs its share, and after kKnownWithin in any case. The
/// server of the connection then reads the end of the stream and closes the socket.
///
/// A connection that shows a valid token while its party's share is used up is served, but stays among the strangers.
/// If the share of strangers is used up, the one that has been quiet longest is shut down, and its client connects
/// again.
///
/// A socket belongs to its server (gRPC closes its own sockets). This class only looks at it, by its number and the
/// kernel's cookie, which is unique to one socket. Thread-safe. The caller passes the time.
class Connections {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  /// A stranger whose request is not whole, or was answered, may be shut down for a new one after so long.
  static constexpr std::chrono::milliseconds kGrace{500};
  /// The value of kGrace while more connections are at the dashboard's entrance than the share of strangers allows.
  static constexpr std::chrono::milliseconds kGraceInACrowd{15};
  /// The value of kGrace for a stranger whose whole request was not answered yet.
  static constexpr std::chrono::seconds kOurTurn{5};
  /// A rank's own connection, and that of the task beside it.
  static constexpr std::size_t kOfARank = 2;
  /// A connection must show a valid token within this time.
  static constexpr std::chrono::seconds kKnownWithin{60};

  explicit Connections(Shares shares) : shares_(shares) {}

  /// Adds a connection that has the headers of a request at the dashboard, and no token. If the share of strangers is
  /// used up, shuts down one whose time is over. False: there is none, so there is no place for it. Call it before the
  /// socket is handed to its server, which may close it.
  bool take_stranger(int socket, Time now);
  /// Adds a connection that showed a valid token at an entrance. Returns why there is no place for it; empty: it is in.
  std::string admit(int socket, const Caller& caller, Time now);

  /// The connection of this socket showed a valid token.
  void know(int socket, Party party, Time now);
  /// The connection from `peer` (in gRPC's form, "ipv4:127.0.0.1:53594") to `local_port` showed a valid token. Calls
  /// `valid` only if the connection is still a stranger. If `valid` is false, nothing changes.
  void know(std::uint16_t local_port, const std::string& peer, Party party, Time now,
            const std::function<bool()>& valid);

  /// The stranger's request is whole, so it is our turn.
  void asked(int socket, Time now);
  /// The stranger's request was answered, and showed no valid token.
  void answered(int socket, Time now);

  /// Forgets closed connections and shuts down strangers after kKnownWithin. Does so at most once a second.
  void tidy(Time now);
  /// True while tidy() may find something to do, soon or later.
  bool has_to_tidy() const {
    const std::lock_guard lock(mutex_);
    return !entries_.empty() || !closing_.empty() || crowd_.is_anywhere();
  }

  /// Thread-safe by itself.
  Crowd& crowd() { return crowd_; }
  /// Both ports share it.
  const std::shared_ptr<KnownNetworks>& known() const { return known_; }

  /// How many wait at the entrance of this port, which notes it.
  void set_waiting(Port port, std::size_t count) { (port == Port::kGrpc ? waiting_ : asking_) = count; }
  /// True while nothing follows from a connection to this port that fails: in a crowd, and while at least half of the
  /// places at its entrance are taken.
  bool is_crowded(Port port, Time now) const {
    const std::size_t waiting = port == Port::kGrpc ? waiting_ : asking_;
    return crowd_.is_at(port, now) || 2 * waiting >= std::max<std::size_t>(shares_.at_the_door(port), 1);
  }

  struct Counts {
    std::size_t strangers = 0, waiting = 0, people = 0, ranks = 0, closing = 0, asking = 0;
  };
  Counts open() const {
    const std::lock_guard lock(mutex_);
    return {strangers_.size(), waiting_, people_, ranks_, closing_.size(), asking_};
  }
  const Shares& shares() const { return shares_; }

 private:
  using Id = std::uint64_t;
  /// The peer's address and port, and the port here.
  using Ends = std::tuple<Address, std::uint16_t, std::uint16_t>;
  struct Entry {
    int socket = -1;
    Ends ends;
    Caller caller{Port::kDashboard, Party::kStranger, {}, 0};  // what it showed when it came
    Party party = Party::kStranger;
    bool is_valid = false;            // a stranger that showed a token while its party's share was used up
    bool is_our_turn = false;         // a stranger whose whole request was not answered yet
    Time since{};                     // when it came
    Time patient_since{};             // what gives it time happened last; of is_valid: neither side has sent a byte
    std::uint64_t said = 0;           // of is_valid: bytes that both sides had sent by patient_since
    std::list<Id>::iterator place{};  // in strangers_
    std::list<Id>::iterator seat{};   // of a rank with a name: in its attempt
    bool is_named(Party shown) const { return caller.party == shown && !caller.whose.empty(); }
  };

  static std::optional<Ends> ends_of(int socket);
  /// None of one socket: the peer is gone already.
  std::optional<std::pair<Id, Entry>> entry_of(int socket, Time now) const;
  static std::optional<Ends> ends_of(std::uint16_t local_port, std::string_view peer);
  static bool is_open(Id id, int socket) { return cookie_of(socket) == id; }
  std::size_t& count(Party party) { return party == Party::kPerson ? people_ : ranks_; }
  std::size_t share(Party party) const { return party == Party::kPerson ? shares_.people : shares_.ranks; }

  /// The connections of one attempt, in order of arrival.
  struct Attempt {
    std::size_t ranks = 1;
    std::list<Id> ids;
    bool has_too_many() const { return ids.size() > kOfARank * ranks; }
  };
  std::string why_full(const Caller& caller, Time now);
  std::string make_room_for(const Caller& caller, Time now);
  void add(Id id, Entry entry);
  std::string why_full(Party party) const;
  void promote(Id id, Entry& entry, Party party, Time now);
  void shut_down(Id id);
  bool had_its_time(Entry& entry, Time now, bool crowd) const;
  void see_off(Time now);
  void forget(Id id);
  void forget_closed(Time now);
  void forget_shut_down() {
    std::erase_if(closing_, [](const auto& closing) { return !is_open(closing.first, closing.second); });
  }

  const Shares shares_;
  mutable std::mutex mutex_;
  std::unordered_map<Id, Entry> entries_;
  std::map<Ends, Id> by_ends_;
  std::list<Id> strangers_;  // in order of arrival; showing a token moves a stranger to the end
  std::vector<std::pair<Id, int>> closing_;
  std::size_t people_ = 0, ranks_ = 0;
  std::unordered_map<std::string, std::size_t> persons_;  // whose -> how many connections
  std::unordered_map<std::string, Attempt> attempts_;     // whose -> those that are ranks
  std::atomic<std::size_t> waiting_{0}, asking_{0};
  Crowd crowd_;
  const std::shared_ptr<KnownNetworks> known_ = std::make_shared<KnownNetworks>();
  Time tidied_{}, swept_{}, told_{}, gave_way_told_{};
};

/// Uses the shares that this process's limit of open files allows.
std::shared_ptr<Connections> connections_of_this_process();

}  // namespace net
