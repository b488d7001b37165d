#pragma once

#include <cstddef>
#include <cstdint>

namespace net {

/// musterd does not start with fewer descriptors.
inline constexpr std::uint64_t kFewestDescriptors = 64;

/// How many connections each party may have open at once.
struct Shares {
  /// Connections without a valid token. The same number again may be closing.
  std::size_t strangers = 0;
  /// Command lines, scripts and browsers.
  std::size_t people = 0;
  /// A rank of a training has two connections (worker and task), a rank of a command one.
  std::size_t ranks = 0;
};

/// The shares of a process with this limit of descriptors. A part is reserved for the process itself: store, logs,
/// supervisors, Slurm's commands.
Shares shares_of(std::uint64_t descriptors);

}  // namespace net
