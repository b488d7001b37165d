#include "fsdp/comm/node/arena.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace fsdp::node {

const std::vector<std::uint64_t>& Arena::readers_of(Block& block) const {
  std::erase_if(block.readers, is_finished_);
  return block.readers;
}

Arena::Block& Arena::take(std::int64_t bytes) {
  largest_ = std::max(largest_, whole_pages(bytes));
  for (const auto& block : blocks_) {
    if (static_cast<std::int64_t>(block->pages.bytes()) < bytes || !is_free(*block)) continue;
    block->is_taken = true;
    return *block;
  }
  // Free blocks that are too small are replaced, so that there are never more blocks than were in use.
  std::erase_if(blocks_, [&](const auto& block) {
    const bool is_replaced = is_free(*block);
    if (is_replaced) file_.discard(block->place, static_cast<std::int64_t>(block->pages.bytes()));
    return is_replaced;
  });
  TORCH_CHECK(end_ + largest_ <= SharedFile::kBytes, "shared memory: the blocks of a rank have grown beyond ",
              SharedFile::kBytes, " bytes");
  auto block = std::make_unique<Block>();
  block->place = end_;
  block->pages = file_.map(end_, largest_, /*writable=*/true);
  block->is_taken = true;
  end_ += largest_;
  return *blocks_.emplace_back(std::move(block));
}

void Arena::trim() {
  for (const auto& block : blocks_)
    if (is_free(*block)) file_.discard(block->place, static_cast<std::int64_t>(block->pages.bytes()));
}

Arena::Block* Arena::find(const void* start, std::int64_t bytes) {
  const auto* first = static_cast<const char*>(start);
  for (const auto& block : blocks_) {
    const char* begin = block->pages.start();
    if (block->is_taken && first >= begin && first + bytes <= begin + block->pages.bytes()) return block.get();
  }
  return nullptr;
}

SharedSpan Arena::span(const Block& block, const void* start) {
  return {block.place, static_cast<std::int64_t>(block.pages.bytes()),
          static_cast<const char*>(start) - block.pages.start()};
}

}  // namespace fsdp::node
