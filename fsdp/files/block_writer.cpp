#include "fsdp/files/block_writer.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/crc32c.h"

namespace fsdp {
namespace {

/// Copied and summed at a time: stays in the processor's cache between the two.
constexpr std::size_t kPieceBytes = 64 << 10;

}  // namespace

BlockWriter::BlockWriter(std::filesystem::path path, std::int64_t block_bytes)
    : path_(std::move(path)), block_bytes_(block_bytes) {
  TORCH_CHECK(block_bytes >= 1, "checksums of blocks of ", block_bytes, " bytes: want 1 or more");
  written_.block_bytes = block_bytes;
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  TORCH_CHECK(fd_ >= 0, "cannot create ", path_.string(), ": ", std::strerror(errno));
}

BlockWriter::~BlockWriter() {
  if (writing_.valid()) writing_.wait();
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(path_.c_str());
}

void BlockWriter::write(const void* data, std::size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    auto& buffer = buffers_[filling_];
    if (!buffer) {
      buffer.reset(static_cast<char*>(std::aligned_alloc(kAlignment, kBufferBytes)));
      TORCH_CHECK(buffer, "no memory for a buffer of ", kBufferBytes, " bytes to write ", path_.string());
    }
    const std::size_t piece = std::min({bytes, kBufferBytes - filled_, kPieceBytes});
    std::memcpy(buffer.get() + filled_, from, piece);
    sum(buffer.get() + filled_, piece);
    filled_ += piece;
    from += piece;
    bytes -= piece;
    if (filled_ < kBufferBytes) continue;
    await_write();
    if (put_ == 0) go_direct();
    writing_ = std::async(std::launch::async, [this, full = buffer.get()] { put(full, kBufferBytes); });
    filling_ = 1 - filling_;
    filled_ = 0;
  }
}

WrittenFile BlockWriter::keep() {
  await_write();
  const char* rest = buffers_[filling_].get();
  const std::size_t aligned = direct_ ? filled_ / kAlignment * kAlignment : 0;
  put(rest, aligned);
  go_plain();
  put(rest + aligned, filled_ - aligned);
  TORCH_CHECK(::fsync(fd_) == 0, "cannot flush ", path_.string(), " to disk: ", std::strerror(errno));
  TORCH_CHECK(::close(std::exchange(fd_, -1)) == 0, "cannot close ", path_.string(), ": ", std::strerror(errno));
  return std::move(written_);
}

/// Adds bytes to the checksums of their blocks.
void BlockWriter::sum(const char* data, std::size_t bytes) {
  while (bytes > 0) {
    const std::int64_t into_block = written_.bytes % block_bytes_;
    if (into_block == 0) written_.blocks.push_back(0);
    const std::size_t piece = std::min(bytes, static_cast<std::size_t>(block_bytes_ - into_block));
    written_.blocks.back() = base::crc32c({data, piece}, written_.blocks.back());
    written_.bytes += static_cast<std::int64_t>(piece);
    data += piece;
    bytes -= piece;
  }
}

void BlockWriter::await_write() {
  if (writing_.valid()) writing_.get();
}

/// Runs on the thread of the write under way, or on the caller's when there is none.
void BlockWriter::put(const char* data, std::size_t bytes) {
  while (bytes > 0) {
    const ::ssize_t wrote = ::write(fd_, data, bytes);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EINVAL && direct_) {
      go_plain();
      continue;
    }
    TORCH_CHECK(wrote > 0, "cannot write ", path_.string(), " beyond ", put_, " bytes: ", std::strerror(errno));
    put_ += wrote;
    data += wrote;
    bytes -= static_cast<std::size_t>(wrote);
    // A disk that is almost full takes a part, and a direct write cannot begin in the middle of a sector.
    if (static_cast<std::size_t>(wrote) % kAlignment != 0) go_plain();
  }
}

void BlockWriter::go_direct() {
  const int flags = ::fcntl(fd_, F_GETFL);
  direct_ = flags >= 0 && ::fcntl(fd_, F_SETFL, flags | O_DIRECT) == 0;
}

void BlockWriter::go_plain() {
  if (!direct_) return;
  direct_ = false;
  const int flags = ::fcntl(fd_, F_GETFL);
  TORCH_CHECK(flags >= 0 && ::fcntl(fd_, F_SETFL, flags & ~O_DIRECT) == 0, "cannot write ", path_.string(),
              " plainly: ", std::strerror(errno));
}

}  // namespace fsdp
