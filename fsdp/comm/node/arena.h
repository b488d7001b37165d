#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "fsdp/comm/node/board.h"
#include "fsdp/comm/node/shared_file.h"

namespace fsdp::node {

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
    std::vector<std::uint64_t> readers;  // collectives that peers may still read this block for
  };

  /// A block of at least `bytes` that nobody reads.
  Block& take(std::int64_t bytes);
  void give_back(Block& block) { block.is_taken = false; }
  /// Gives the pages of free blocks back to the system.
  void trim();
  /// The taken block that contains the whole range; null: there is none.
  Block* find(const void* start, std::int64_t bytes);
  /// Forgets the collectives that all peers have finished. Returns those that are left.
  const std::vector<std::uint64_t>& readers_of(Block& block) const;

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
