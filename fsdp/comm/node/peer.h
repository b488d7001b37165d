#pragma once
#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "fsdp/comm/node/board.h"
#include "fsdp/comm/node/shared_file.h"

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
  Descriptor process_;
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

}  // namespace fsdp::node
