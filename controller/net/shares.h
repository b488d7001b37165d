#pragma once

#include <cstddef>
#include <cstdint>

namespace net {

/// The fewest descriptors that musterd starts with.
inline constexpr std::uint64_t kFewestDescriptors = 64;

/// How many connections may be open at once, by whose they are. Nobody can take another's share.
struct Shares {
  /// No valid token was shown on them. As many again may be closing.
  std::size_t strangers = 0;
  /// Command lines, scripts and browsers.
  std::size_t people = 0;
  /// A rank of a training has two connections (worker and task), a rank of a command one.
  std::size_t ranks = 0;
};

/// The shares of a process that may have so many descriptors open. A part is kept for the process itself: store, logs,
/// supervisors, Slurm's commands.
Shares shares_of(std::uint64_t descriptors);

}  // namespace net
