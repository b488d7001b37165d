// Goal: a large file goes around the page cache where the file system lets it, and holds the same bytes everywhere.
// Method: files on the disk under the system's temporary folder, and a write() that refuses or cuts direct writes.
#include "fsdp/files/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/temporary_folder.h"

namespace {

enum class Direct { kAllowed, kRefused, kCut };
std::atomic<Direct> direct = Direct::kAllowed;
std::atomic<int> direct_writes = 0;

}  // namespace

/// Replaces the C library's write.
extern "C" ssize_t write(int fd, const void* data, size_t bytes) {
  const bool goes_direct = bytes >= 4096 && (::syscall(SYS_fcntl, fd, F_GETFL) & O_DIRECT) != 0;
  if (goes_direct && direct == Direct::kRefused) {
    errno = EINVAL;
    return -1;
  }
  // A disk that is almost full may take a part that ends in the middle of a sector.
  if (goes_direct && direct == Direct::kCut) {
    const long flags = ::syscall(SYS_fcntl, fd, F_GETFL);
    ::syscall(SYS_fcntl, fd, F_SETFL, flags & ~O_DIRECT);
    const ssize_t wrote = ::syscall(SYS_write, fd, data, bytes - 1000);
    ::syscall(SYS_fcntl, fd, F_SETFL, flags);
    return wrote;
  }
  if (goes_direct) ++direct_writes;
  return ::syscall(SYS_write, fd, data, bytes);
}

namespace {

using fsdp::BlockWriter;
using ::testing::Eq;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::string some_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  std::uint32_t state = 1;
  for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return bytes;
}

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class BlockWriting : public ::testing::Test {
 protected:
  ~BlockWriting() override { direct = Direct::kAllowed; }

  /// Writes `bytes` in pieces of uneven sizes, and compares file and checksums.
  void expect_written(const std::string& bytes, std::int64_t block_bytes) {
    const fs::path path = folder_.path() / "out";
    fs::remove(path);
    direct_writes = 0;
    BlockWriter writer(path, block_bytes);
    for (std::size_t at = 0, piece = 1; at < bytes.size(); at += piece, piece = piece * 7 % 4'000'037)
      writer.write(bytes.data() + at, std::min(piece, bytes.size() - at));
    const fsdp::WrittenFile written = writer.keep();
    EXPECT_THAT(content_of(path) == bytes, Eq(true)) << "of " << bytes.size() << " bytes";
    EXPECT_EQ(written.bytes, static_cast<std::int64_t>(bytes.size()));
    std::vector<std::uint32_t> want;
    for (std::size_t at = 0; at < bytes.size(); at += static_cast<std::size_t>(block_bytes))
      want.push_back(
          base::crc32c({bytes.data() + at, std::min(static_cast<std::size_t>(block_bytes), bytes.size() - at)}));
    EXPECT_EQ(written.blocks, want);
  }

  TemporaryFolder folder_;
};

constexpr std::size_t kBuffer = BlockWriter::kBufferBytes;

TEST_F(BlockWriting, GivesTheSameBytesAtAllSizesAroundABuffer) {
  const std::string bytes = some_bytes(2 * kBuffer + 4096);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, kBuffer - 1, kBuffer, kBuffer + 1, kBuffer + 4097, 2 * kBuffer, bytes.size()})
    expect_written(bytes.substr(0, size), 16 << 20);
  expect_written(bytes.substr(0, kBuffer + 5), 1'000'003);
  expect_written("abcdefg", 3);
}

TEST_F(BlockWriting, GoesAroundThePageCacheFromOneBufferOn) {
  const int fd = ::open(folder_.path().c_str(), O_TMPFILE | O_RDWR | O_DIRECT, 0600);
  if (fd < 0) GTEST_SKIP() << "the temporary folder's file system refuses O_DIRECT";
  ::close(fd);
  expect_written(some_bytes(2 * kBuffer + 3 * 4096 + 5), 16 << 20);
  EXPECT_EQ(direct_writes, 3) << "two buffers, and the rest up to its last whole sector";
  expect_written(some_bytes(kBuffer - 1), 16 << 20);
  EXPECT_EQ(direct_writes, 0) << "a small file";
}

TEST_F(BlockWriting, IsPlainWhereDirectWritesAreRefused) {
  direct = Direct::kRefused;
  expect_written(some_bytes(2 * kBuffer + 4097), 16 << 20);
  EXPECT_EQ(direct_writes, 0);
}

TEST_F(BlockWriting, IsPlainAfterAWriteThatEndedInsideOfASector) {
  direct = Direct::kCut;
  expect_written(some_bytes(3 * kBuffer + 4097), 16 << 20);
}

TEST_F(BlockWriting, LeavesNothingUnlessItIsKept) {
  const fs::path path = folder_.path() / "out";
  {
    BlockWriter writer(path, 16 << 20);
    const std::string bytes = some_bytes(kBuffer + 1);
    writer.write(bytes.data(), bytes.size());
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_THAT(error_of([&] { BlockWriter(path, 0); }), HasSubstr("want 1 or more"));
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
