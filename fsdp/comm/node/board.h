#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>

namespace fsdp::node {

/// Collectives of one group that may be under way at one time. A collective that would be one more waits.
constexpr std::uint64_t kPosts = 512;
constexpr std::size_t kTextBytes = 240;  // of which the last is 0

/// Bytes in the file of the rank that posts them.
struct SharedSpan {
  std::int64_t block = 0;  // where the mapped range begins in the file
  std::int64_t block_bytes = 0;
  std::int64_t offset = 0;  // of the data in the block
};

/// What a rank tells of one collective. `posted` and `finished` are the collective's number + 1.
struct Post {
  std::atomic<std::uint64_t> posted;    // set when the fields below are whole
  std::atomic<std::uint64_t> finished;  // set when this rank reads nothing more of its peers for this collective
  std::uint64_t digest;                 // of kind, owner, size and number
  SharedSpan data;
  std::array<char, kTextBytes> text;  // kind, owner and size, for an error on a peer
};

/// The start of a rank's file. Only the rank itself writes to it, so a broken peer cannot damage it. Zeros are a valid
/// board.
///
/// [Note: bell] Whoever waits for a rank sleeps on that rank's bell. The rank rings after each change. A waiter reads
/// the bell before it looks at the board, and the kernel puts it to sleep only if the bell has not rung since. So no
/// change is missed.
struct Board {
  std::uint64_t key;  // a random number that the peers know
  alignas(64) std::atomic<std::uint32_t> bell;
  std::atomic<std::uint32_t> left;  // 1: the rank takes part in no further collective
  std::array<char, kTextBytes> why_left;
  alignas(64) std::array<Post, kPosts> posts;

  const Post& post(std::uint64_t number) const { return posts[number % kPosts]; }
  Post& post(std::uint64_t number) { return posts[number % kPosts]; }
  bool has_posted(std::uint64_t number) const {
    return post(number).posted.load(std::memory_order_acquire) == number + 1;
  }
  /// A later number stands there once all ranks have finished this one.
  bool has_finished(std::uint64_t number) const {
    return post(number).finished.load(std::memory_order_acquire) >= number + 1;
  }
  void ring();
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

/// Sleeps until `board` rings, unless its bell is no longer `seen`, for at most `limit`.
/// Returns false when the time has passed.
bool sleep_until_rung(const Board& board, std::uint32_t seen, std::chrono::nanoseconds limit);

}  // namespace fsdp::node
