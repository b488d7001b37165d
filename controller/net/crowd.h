#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "net/address.h"

namespace net {

/// The ports of musterd. kGrpc: of command lines and ranks.
enum class Port { kGrpc, kDashboard };
inline constexpr std::array kAllPorts{Port::kGrpc, Port::kDashboard};
/// "gRPC", "dashboard".
const char* name_of(Port port);

/// The state "crowd" of each port: more connections without a token come than there are places, so some are turned
/// away. Nothing else follows from it: nobody who was let in notices, and it is no reason to open a port again.
///
/// States: calm -> crowd (kMany were turned away without a pause of kCalmAfter) -> calm (nobody was for kCalmAfter).
/// Both changes are logged, and once a minute how many were turned away. Thread-safe. The caller passes the time.
class Crowd {
 public:
  using Time = std::chrono::steady_clock::time_point;

  static constexpr std::uint64_t kMany = 50;
  static constexpr std::chrono::seconds kCalmAfter{10};

  /// A connection from this address was turned away for want of a place.
  void turned_away(Port port, const Address& from, Time now);
  /// Notes a calm. Call it every few seconds.
  void look(Time now);

  bool is_at(Port port, Time now) const;
  /// For people, one sentence for each crowd; empty: there is none.
  std::string text(Time now) const;
  /// How many were turned away since the start.
  std::uint64_t total(Port port) const;

 private:
  struct State {
    std::uint64_t total = 0;
    std::uint64_t count = 0;  // since it began
    Time since{}, last{}, told{};
    bool is_crowd = false;
    std::map<Address, std::uint64_t> from;
  };
  static std::string text_of(Port port, const State& state, Time now);
  State& at(Port port) { return states_[static_cast<std::size_t>(port)]; }
  const State& at(Port port) const { return states_[static_cast<std::size_t>(port)]; }

  mutable std::mutex mutex_;
  std::array<State, kAllPorts.size()> states_;
};

}  // namespace net
