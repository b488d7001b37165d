#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
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
/// A process is asked by a signal that it takes for this alone (agent/protocol/files.h); nothing is sent to any other.
std::vector<std::string> take_stacks(const std::vector<Rank>& ranks, const Patience& patience = {});

/// Takes stacks for an agent, in a thread of its own that begins with the first request: heartbeats and news of ends
/// wait for none of it. Thread-safe.
class Taker {
 public:
  /// Called in that thread for each rank that has a stack. It may wait for a disk or the network, and must not throw.
  using Keep = std::function<void(std::uint64_t number, std::uint32_t rank, const std::string& text)>;
  explicit Taker(Keep keep) : keep_(std::move(keep)) {}
  /// Waits for the request under way, a few seconds at most.
  ~Taker();
  Taker(const Taker&) = delete;
  Taker& operator=(const Taker&) = delete;

  /// Returns at once. A number is answered once, however often it is asked; a newer one replaces one that waits.
  void ask(std::uint64_t number, std::vector<Rank> ranks);

 private:
  void run();

  const Keep keep_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::uint64_t newest_ = 0;  // that was asked for
  bool waits_ = false;        // it is not begun yet
  bool closed_ = false;
  std::vector<Rank> ranks_;
  std::thread thread_;
};

}  // namespace agent::stacks
