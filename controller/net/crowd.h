#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "controller/common/loop.h"
#include "controller/net/address.h"

namespace net {

/// From which networks a valid token has come during the last day. In a crowd such a network gives way last, see
/// WaitingRoom. Both ports share one. It touches no file, see KnownNetworksFile. Thread-safe. The caller passes the
/// time.
class KnownNetworks {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// Since 1970.
  using WallSeconds = std::chrono::seconds;

  /// For how long a network stays known, and how many are.
  static constexpr std::chrono::hours kKnownFor{24};
  static constexpr std::size_t kMostKnown = 8192;
  /// A network that is heard again and again is noted anew, for the file, after so long.
  static constexpr std::chrono::hours kNotedFor{1};

  /// `tell` is called each time when has_news() becomes true, under a lock: it must not call back. Empty: nobody is.
  void on_news(std::function<void()> tell) {
    const std::lock_guard lock(mutex_);
    on_news_ = std::move(tell);
  }
  /// A call from this address was accepted.
  void know(const Address& address, Time now);
  bool is_known(const Address& network, Time now) const;

  /// True if text() has something new since the last call of it.
  bool has_news() const {
    const std::lock_guard lock(mutex_);
    return has_news_;
  }
  /// For a file: a line for each network that is known, "<seconds since 1970> <address>".
  std::string text(Time now, WallSeconds wall);
  /// Takes what text() said before. Lines that are too old are left out. Returns how many lines are none of text()'s,
  /// which are left out, too, and so is whatever is beyond kMostKnown.
  std::size_t read(std::string_view text, Time now, WallSeconds wall);

 private:
  struct Heard {
    Time last{}, noted{};
  };
  void forget_the_oldest() {
    networks_.erase(std::ranges::min_element(networks_, {}, [](const auto& one) { return one.second.last; }));
  }

  mutable std::mutex mutex_;
  std::map<Address, Heard> networks_;
  bool has_news_ = false;
  std::function<void()> on_news_;
};

/// Keeps the known networks over a restart of musterd, which is when everybody comes at once. What it reads or writes
/// is only a hint: a file that is missing, wrong or cannot be written is told in the log, and nothing else follows. A
/// thread of its own does the writing, since a disk may stand still. The last kEvery before a crash are lost.
class KnownNetworksFile {
 public:
  static constexpr core::Millis kEvery{1000};
  static constexpr core::Millis kAfterTrouble{60'000};

  /// Reads the file. Without threads the caller calls step().
  KnownNetworksFile(std::filesystem::path path, std::shared_ptr<KnownNetworks> networks, bool threads);
  ~KnownNetworksFile() { networks_->on_news({}); }
  KnownNetworksFile(const KnownNetworksFile&) = delete;
  KnownNetworksFile& operator=(const KnownNetworksFile&) = delete;

  /// Writes the file if there has been news for one step: many come at once after a restart.
  std::optional<core::Millis> step();

 private:
  void read();

  const std::filesystem::path path_;
  const std::shared_ptr<KnownNetworks> networks_;
  bool gathers_ = false;  // the next step writes
  bool failed_ = false;   // the last write did
  common::Loop loop_;
};

/// The ports of musterd. kGrpc: of command lines and ranks.
enum class Port { kGrpc, kDashboard };
inline constexpr std::array kAllPorts{Port::kGrpc, Port::kDashboard};
/// "gRPC", "dashboard".
const char* name_of(Port port);

/// The state "crowd" of each port: many connections are turned away, so others may need several tries. Nothing else
/// follows from it: nobody who was let in notices, and it is no reason to open a port again.
///
/// States: calm -> crowd (kMany were turned away within kCalmAfter) -> calm (fewer than kFew within kCalmAfter).
/// Both changes are logged, and once a minute how many were turned away, and why. Thread-safe. The caller passes the
/// time.
class Crowd {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static constexpr std::size_t kMany = 50;
  static constexpr std::size_t kFew = 5;
  static constexpr std::chrono::seconds kCalmAfter{10};

  /// Why a connection was turned away.
  enum class Why {
    kNoPlace,          // too many have no accepted call
    kNoToken,          // its call showed no valid token
    kBadWords,         // it was over its budget, or spoke another language
    kLate,             // no call, or no whole request, in time
    kNoPlaceOfItsOwn,  // with a token, but its user, its rank or its party has too many, or there is no such rank
  };
  static constexpr std::size_t kReasons = 5;

  /// A connection from this address was turned away.
  void turned_away(Port port, const Address& from, Why why, Time now);
  /// Notes a calm. Call it every few seconds.
  void look(Time now);

  bool is_at(Port port, Time now) const {
    const std::lock_guard lock(mutex_);
    return goes_on(at(port), now);
  }
  /// True until look() has noted the calm.
  bool is_anywhere() const {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(states_, &State::is_crowd);
  }
  /// For people, one sentence for each crowd; empty: there is none.
  std::string text(Time now) const;
  /// How many were turned away since the start.
  std::uint64_t total(Port port) const {
    const std::lock_guard lock(mutex_);
    return totals_[static_cast<std::size_t>(port)];
  }

 private:
  struct State {
    std::array<std::uint64_t, kReasons> count{};  // since it began
    Time since{}, told{};
    bool is_crowd = false;
    std::deque<Time> newest;  // when they were turned away, at most kMany
    std::map<Address, std::uint64_t> from;
  };
  static std::uint64_t all(const State& state);
  static bool goes_on(const State& state, Time now) {
    return state.is_crowd && state.newest.size() >= kFew && now - state.newest[state.newest.size() - kFew] < kCalmAfter;
  }
  static std::string text_of(Port port, const State& state, Time now);
  State& at(Port port) { return states_[static_cast<std::size_t>(port)]; }
  const State& at(Port port) const { return states_[static_cast<std::size_t>(port)]; }

  mutable std::mutex mutex_;
  std::array<State, kAllPorts.size()> states_;
  std::array<std::uint64_t, kAllPorts.size()> totals_{};
};

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
