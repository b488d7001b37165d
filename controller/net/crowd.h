#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>

#include "controller/net/address.h"

namespace net {

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

  bool is_at(Port port, Time now) const;
  /// For people, one sentence for each crowd; empty: there is none.
  std::string text(Time now) const;
  /// How many were turned away since the start.
  std::uint64_t total(Port port) const;

 private:
  struct State {
    std::array<std::uint64_t, kReasons> count{};  // since it began
    Time since{}, told{};
    bool is_crowd = false;
    std::deque<Time> newest;  // when they were turned away, at most kMany
    std::map<Address, std::uint64_t> from;
  };
  static std::uint64_t all(const State& state);
  static bool goes_on(const State& state, Time now);
  static std::string text_of(Port port, const State& state, Time now);
  State& at(Port port) { return states_[static_cast<std::size_t>(port)]; }
  const State& at(Port port) const { return states_[static_cast<std::size_t>(port)]; }

  mutable std::mutex mutex_;
  std::array<State, kAllPorts.size()> states_;
  std::array<std::uint64_t, kAllPorts.size()> totals_{};
};

}  // namespace net
