#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/fd.h"

namespace fsdp::node {

/// Pages of a shared file in this process. Data in them outlives the file's owner while the mapping lives.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* start, std::size_t bytes) : start_(static_cast<char*>(start)), bytes_(bytes) {}
  ~Mapping();
  Mapping(Mapping&& other) noexcept
      : start_(std::exchange(other.start_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(start_, other.start_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  char* start() const { return start_; }
  std::size_t bytes() const { return bytes_; }

 private:
  char* start_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A file in memory without a name. The kernel frees it with its last user, however that user ends. It takes no room
/// in /dev/shm, and memory only where it was written.
class SharedFile {
 public:
  /// Bytes of address space in a file: more than a rank's memory, because the file has holes.
  static constexpr std::int64_t kBytes = std::int64_t{1} << 42;

  /// Throws c10::Error with the kernel's reason.
  static SharedFile create();
  /// The file of a process of the same user that has it open as `fd`. Throws c10::Error with the kernel's reason.
  static SharedFile open(pid_t pid, int fd);

  Mapping map(std::int64_t offset, std::int64_t bytes, bool writable) const;
  /// Gives the pages back to the kernel. They read as zeros afterwards, for every process.
  void discard(std::int64_t offset, std::int64_t bytes) const;
  int descriptor() const { return file_.get(); }

 private:
  explicit SharedFile(int fd) : file_(fd) {}
  base::Fd file_;
};

/// Rounds up to whole pages.
std::int64_t whole_pages(std::int64_t bytes);

/// Collectives of one group that may be under way at one time. A collective that would be one more waits.
constexpr std::uint64_t kPosts = 512;
constexpr std::size_t kTextBytes = 240;  // of which the last is 0

/// Bytes in the file of the rank that posts them.
struct SharedSpan {
  std::int64_t block = 0;  // where the mapped range begins in the file
  std::int64_t block_bytes = 0;
  std::int64_t offset = 0;  // of the data in the block
};

/// Facts that a rank tells of one collective. `posted` and `finished` are the collective's number + 1.
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

/// This rank's memory that its peers read, in blocks of its shared file.
///
/// A block serves again when its user has given it back and no peer reads it for a collective. All blocks have the size
/// of the largest that was asked for, so any free block serves any collective. There are as many as were in use at one
/// time. Pages that were never written cost no memory. A block keeps its place in the file, so peers map it once.
///
/// Not thread-safe.
class Arena {
 public:
  /// Blocks begin at byte `begin` of `file`. `is_finished` says whether all peers have finished a collective.
  Arena(const SharedFile& file, std::int64_t begin, std::function<bool(std::uint64_t number)> is_finished)
      : file_(file), end_(begin), is_finished_(std::move(is_finished)) {}

  struct Block {
    std::int64_t place = 0;  // in the file
    Mapping pages;
    bool is_taken = false;
    /// A collective that peers may still read bytes [begin, end) of this block for.
    struct Reader {
      std::uint64_t number = 0;
      std::int64_t begin = 0, end = 0;
    };
    std::vector<Reader> readers;
  };

  /// A block of at least `bytes` that nobody reads.
  Block& take(std::int64_t bytes);
  void give_back(Block& block) { block.is_taken = false; }
  /// Gives the pages of free blocks back to the system.
  void trim();
  /// The taken block that contains the whole range; null: there is none.
  Block* find(const void* start, std::int64_t bytes);
  /// Forgets the collectives that all peers have finished. Returns those that are left.
  const std::vector<Block::Reader>& readers_of(Block& block) const;

  static SharedSpan span(const Block& block, const void* start);

 private:
  bool is_free(Block& block) const { return !block.is_taken && readers_of(block).empty(); }

  const SharedFile& file_;
  std::int64_t end_;
  std::function<bool(std::uint64_t)> is_finished_;
  std::int64_t largest_ = 0;
  std::vector<std::unique_ptr<Block>> blocks_;
};

}  // namespace fsdp::node
