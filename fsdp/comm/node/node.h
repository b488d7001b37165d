#pragma once

#include <sys/types.h>

#include <c10/util/intrusive_ptr.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "fsdp/comm/node/shared_file.h"
#include "fsdp/comm/transport.h"

namespace fsdp::node {

/// Tells the processor that this is a loop that waits.
inline void relax() {
#ifdef __x86_64__
  __builtin_ia32_pause();
#endif
}

using Deadline = std::chrono::steady_clock::time_point;

/// How to find a rank's file: what the rank writes into the rendezvous store.
struct Card {
  std::string host;  // equal for processes that can open each other's files
  pid_t pid = 0;
  int fd = -1;
  std::uint64_t key = 0;

  std::string text() const;
  /// Throws c10::Error with the text.
  static Card parse(const std::string& text);
};

/// The running kernel, the namespace of process numbers and the user.
std::string this_host();

/// Says to a thread that waits for peers that it waits in vain. set() may be called from any thread.
class Interruption {
 public:
  void set(const std::string& reason) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (is_set()) return;
    reason_ = reason;
    set_.store(true, std::memory_order_release);
  }
  bool is_set() const { return set_.load(std::memory_order_acquire); }
  /// Once set.
  const std::string& reason() const { return reason_; }

 private:
  std::mutex mutex_;
  std::atomic<bool> set_{false};
  std::string reason_;
};

/// Another rank of this node: its board, its memory and whether it lives.
class Peer {
 public:
  /// Throws c10::Error with the kernel's reason when the file cannot be opened, or is not the card's.
  explicit Peer(const Card& card);

  const Board& board() const { return *board_; }
  pid_t pid() const { return pid_; }

  enum class Outcome { kReady, kLeft, kDied, kLate, kInterrupted };
  /// Waits until `ready` is true, which looks at board(). A peer that has died or left, and an interruption, are
  /// noticed within kLook.
  template <typename Ready>
  Outcome await(const Ready& ready, Deadline deadline, const Interruption& interruption) const;

  /// The posted bytes. They are mapped at first use and stay mapped.
  const char* data(const SharedSpan& span);

 private:
  bool is_dead() const;

  static constexpr std::chrono::milliseconds kLook{100};
  /// Checks before the first sleep: some microseconds. A yield instead of relax() would give a busy core away for
  /// milliseconds.
  static constexpr int kSpins = 300;

  pid_t pid_;
  base::Fd process_;
  SharedFile file_;
  Mapping board_pages_;
  const Board* board_ = nullptr;
  std::map<std::int64_t, Mapping> blocks_;  // by place in the file
};

template <typename Ready>
Peer::Outcome Peer::await(const Ready& ready, Deadline deadline, const Interruption& interruption) const {
  for (int i = 0; i < kSpins; ++i) {
    if (ready()) return Outcome::kReady;
    relax();
  }
  for (bool looked = true;;) {
    const std::uint32_t seen = board_->bell.load(std::memory_order_acquire);
    const bool left = board_->left.load(std::memory_order_acquire) != 0;
    const bool dead = !looked && is_dead();
    // Checked last: what a peer did before it left or died counts.
    if (ready()) return Outcome::kReady;
    if (left) return Outcome::kLeft;
    if (dead) return Outcome::kDied;
    if (interruption.is_set()) return Outcome::kInterrupted;
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return Outcome::kLate;
    looked = sleep_until_rung(*board_, seen, std::min<std::chrono::nanoseconds>(deadline - now, kLook));
  }
}

/// A collective of a rank. Ranks match their collectives by number and compare the rest.
struct Call {
  const char* kind = "";
  std::string_view whose;
  std::int64_t bytes = 0;  // of one rank's part
  std::uint64_t number = 0;

  std::string text() const;
  std::uint64_t digest() const;
};

/// This rank among the ranks of a group that share memory: its board and blocks, and those of its peers.
///
/// A collective begins with next() and post(), which do not wait for peers. Later this rank reads its peers' bytes with
/// data_of(), and calls finish(). A peer's bytes stay until every rank has called finish().
///
/// The first failure is final: the rank tells its peers why it leaves, and each later collective fails with the first
/// reason.
///
/// Not thread-safe, except interrupt().
class Node {
 public:
  /// Makes this rank's file. Throws c10::Error with the reason where the system does not allow it.
  Node(int rank, int world_size, std::chrono::milliseconds timeout);
  /// Tells the peers that this rank has left.
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  Card card() const;
  /// Opens the peers' files. `cards` are by rank. Throws c10::Error naming the rank that cannot be reached.
  void meet(const std::vector<Card>& cards);

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  Arena& arena() { return arena_; }

  /// A call with the next number. Throws when the group has failed.
  Call next(const char* kind, std::string_view whose, std::int64_t bytes);
  /// Shows `bytes` bytes from `data` on, of `block`, to the peers. Null: the call carries nothing of this rank.
  void post(const Call& call, Arena::Block* block = nullptr, const void* data = nullptr, std::int64_t bytes = 0);
  /// Waits for a peer's bytes of this call. Throws c10::Error naming call and peer when the peer died, left, is late,
  /// or makes another call at this point.
  const char* data_of(int peer, const Call& call);
  /// This rank reads nothing more for the call.
  void finish(const Call& call);

  /// Waits until all peers have finished the calls for which they may read some of `bytes` bytes from `data` on, of
  /// `block`. A peer that died or left reads nothing. Throws c10::Error naming the peer after the timeout.
  void await_readers(Arena::Block& block, const void* data, std::int64_t bytes);

  /// Takes part in no further collective. The peers get to read `reason`.
  void leave(const std::string& reason);

  /// Ends each wait for a peer, now and later, with this error. May be called from any thread.
  void interrupt(const std::string& reason) { interruption_.set(reason); }

 private:
  Board& board() { return *reinterpret_cast<Board*>(board_pages_.start()); }
  bool all_finished(std::uint64_t number) const;
  void await_finished(std::uint64_t number, const std::string& what);
  [[noreturn]] void fail(const Call& call, int peer, const std::string& reason);
  std::string why(int peer, Peer::Outcome outcome) const;

  int rank_;
  int world_size_;
  std::chrono::milliseconds timeout_;
  SharedFile file_;
  Mapping board_pages_;
  Arena arena_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank, null for this one
  std::uint64_t number_ = 0;
  int failed_peer_ = -1;
  std::string failure_;
  Interruption interruption_;
};

/// Finds out over the store whether all ranks of a group can share memory, and connects them. Collective.
/// All ranks get a node, or all get null: then one of them runs elsewhere, or its system does not allow it.
/// Throws c10::Error naming the rank that has not come within the timeout.
std::unique_ptr<Node> meet(const c10::intrusive_ptr<c10d::Store>& store, const TransportOptions& options);

}  // namespace fsdp::node
