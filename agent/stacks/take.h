#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace agent::stacks {

/// A rank, by its first process. What that has started belongs to it too.
struct Rank {
  std::uint32_t rank = 0;
  pid_t pid = 0;
};

/// How long each way may take, all ranks together.
struct Patience {
  std::chrono::milliseconds own{1500};    // for what processes write of themselves
  std::chrono::milliseconds other{2000};  // for py-spy
};

/// The stack of each rank, in their order: frames of the processes that write them themselves, or that py-spy can read,
/// and what the kernel tells of every thread. A stopped process is not asked. UTF-8, at most
/// protocol::kMostStackBytes each. Empty: the rank has no process any more.
///
/// A process is asked by a signal that it takes for this alone (agent/protocol/stacks.h); nothing is sent to any other.
std::vector<std::string> take_stacks(const std::vector<Rank>& ranks, const Patience& patience = {});

}  // namespace agent::stacks
