#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::watch {

/// A collective that a rank has started on a communicator.
struct Call {
  std::uint64_t number = 0;  // among those of its communicator; ranks that are in step count alike
  std::string kind;
  std::string whose;         // shortened; `digest` tells long names apart
  std::int64_t bytes = 0;    // of one rank's part
  std::uint64_t digest = 0;  // of kind, owner and bytes: equal on ranks that make the same call

  /// "all-gather of layers.4 (12582912 bytes a rank)".
  std::string text() const;
};

/// Notes that a rank's thread makes of its collectives on one communicator, for the watcher.
///
/// [Note: cost of the watcher] A collective costs two uncontended locks and a few stores, and no system call. The
/// watcher's thread reads the notes a few times a second. It takes the lock only when another rank asks.
class Calls {
 public:
  static constexpr std::size_t kKept = 64;

  /// Notes a collective that begins. Returns its number.
  std::uint64_t start(const char* kind, std::string_view whose, std::int64_t bytes);
  /// The thread that starts collectives stands in this one from now on, until leave().
  void enter(std::uint64_t number);
  void leave();

  struct Place {
    std::uint64_t stay = 0;  // odd: the thread stands in `number`; another stay has another value
    std::uint64_t number = 0;
    bool inside() const { return stay % 2 == 1; }
  };
  Place place() const;
  /// How many collectives were started.
  std::uint64_t made() const { return made_.load(std::memory_order_relaxed); }
  /// The last ones that were started, at most kKept, the oldest first.
  std::vector<Call> last() const;

 private:
  static constexpr std::size_t kNameBytes = 60;
  struct Kept {
    const char* kind = "";
    std::int64_t bytes = 0;
    std::uint64_t digest = 0;
    std::array<char, kNameBytes> whose{};  // ends with 0 unless full
  };

  mutable std::mutex mutex_;  // of kept_
  std::array<Kept, kKept> kept_{};
  std::atomic<std::uint64_t> made_{0};
  std::atomic<std::uint64_t> stay_{0}, number_{0};
};

/// A thread's stay in a collective. `calls` may be null.
class Stay {
 public:
  Stay(Calls* calls, std::uint64_t number) : calls_(calls) {
    if (calls_ != nullptr) calls_->enter(number);
  }
  ~Stay() {
    if (calls_ != nullptr) calls_->leave();
  }
  Stay(const Stay&) = delete;
  Stay& operator=(const Stay&) = delete;

 private:
  Calls* calls_;
};

}  // namespace fsdp::watch
