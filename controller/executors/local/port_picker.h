#pragma once

#include <cstdint>
#include <set>
#include <utility>

namespace runtime::local {

/// Hands out TCP ports for MASTER_PORT. Taken from outside the kernel's ephemeral range, so that no connection of
/// another program gets one by chance between choice and use, and round and round, so that one given back is not used
/// again soon. Not thread-safe.
class PortPicker {
 public:
  using Range = std::pair<std::uint16_t, std::uint16_t>;  // first and last

  /// `seed` decides where to begin: several controllers on one machine begin at different places.
  explicit PortPicker(std::uint32_t seed, Range ephemeral = ephemeral_range());

  /// A port that nothing listens on now. 0 if none is free.
  std::uint16_t take();
  /// In use by an attempt that was started earlier.
  void mark(std::uint16_t port) { used_.insert(port); }
  void give_back(std::uint16_t port) { used_.erase(port); }

  /// /proc/sys/net/ipv4/ip_local_port_range; Linux's default if it cannot be read.
  static Range ephemeral_range();

 private:
  Range candidates_;
  std::uint32_t next_;
  std::set<std::uint16_t> used_;
};

}  // namespace runtime::local
