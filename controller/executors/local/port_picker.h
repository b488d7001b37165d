#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "controller/core/types.h"

namespace executors::local {

/// Hands out TCP ports for MASTER_PORT, one for each attempt that is not over. Ports come from outside the kernel's
/// ephemeral range, so that no connection of another program gets one by chance between choice and use. They come round
/// and round, so that one given back is not used again soon. Thread-safe.
class PortPicker {
 public:
  using Range = std::pair<std::uint16_t, std::uint16_t>;  // first and last

  /// `seed` decides where to begin: several controllers on one machine begin at different places.
  explicit PortPicker(std::uint32_t seed, Range ephemeral = ephemeral_range());

  /// A port that nothing listens on now. Throws std::system_error.
  std::uint16_t take(const core::AttemptKey& key);
  /// An earlier controller chose this port.
  void keep(const core::AttemptKey& key, std::uint16_t port);
  void give_back(const core::AttemptKey& key);

  /// /proc/sys/net/ipv4/ip_local_port_range; Linux's default if it cannot be read.
  static Range ephemeral_range();

 private:
  const Range candidates_;
  std::mutex mutex_;
  std::uint32_t next_;
  std::map<core::AttemptKey, std::uint16_t> of_;
};

}  // namespace executors::local
