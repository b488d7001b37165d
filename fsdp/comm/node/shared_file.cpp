#include "fsdp/comm/node/shared_file.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <c10/util/Exception.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

namespace fsdp::node {

Mapping::~Mapping() {
  if (start_ != nullptr) ::munmap(start_, bytes_);
}

SharedFile SharedFile::create() {
  // Beyond this limit ftruncate() would end the process by SIGXFSZ.
  rlimit limit{};
  TORCH_CHECK(::getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
                  (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= static_cast<rlim_t>(kBytes)),
              "the limit of file sizes (ulimit -f) is below ", kBytes, " bytes");
  SharedFile file(::memfd_create("fsdp", MFD_CLOEXEC));
  TORCH_CHECK(file.descriptor() >= 0, "memfd_create: ", std::strerror(errno));
  TORCH_CHECK(::ftruncate(file.descriptor(), kBytes) == 0, "ftruncate of a memfd: ", std::strerror(errno));
  return file;
}

SharedFile SharedFile::open(pid_t pid, int fd) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  SharedFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  TORCH_CHECK(file.descriptor() >= 0, path, ": ", std::strerror(errno));
  return file;
}

Mapping SharedFile::map(std::int64_t offset, std::int64_t bytes, bool writable) const {
  void* start = ::mmap(nullptr, static_cast<std::size_t>(bytes), writable ? PROT_READ | PROT_WRITE : PROT_READ,
                       MAP_SHARED, descriptor(), offset);
  TORCH_CHECK(start != MAP_FAILED, "mmap of ", bytes, " bytes of shared memory: ", std::strerror(errno),
              "; is the address space limited (ulimit -v)?");
  return {start, static_cast<std::size_t>(bytes)};
}

void SharedFile::discard(std::int64_t offset, std::int64_t bytes) const {
  ::fallocate(descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, bytes);
}

std::int64_t whole_pages(std::int64_t bytes) {
  static const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  return (bytes + page - 1) / page * page;
}

void Board::ring() {
  bell.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, &bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool sleep_until_rung(const Board& board, std::uint32_t seen, std::chrono::nanoseconds limit) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  const timespec time{limit.count() / kSecond, limit.count() % kSecond};
  return ::syscall(SYS_futex, &board.bell, FUTEX_WAIT, seen, &time, nullptr, 0) == 0 || errno != ETIMEDOUT;
}

const std::vector<Arena::Block::Reader>& Arena::readers_of(Block& block) const {
  std::erase_if(block.readers, [this](const Block::Reader& reader) { return is_finished_(reader.number); });
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
