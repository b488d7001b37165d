#pragma once
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>

#include "fsdp/files/safetensors.h"

namespace fsdp {

/// A new file that is written from front to back. Bytes are gathered in two buffers. One is filled and its checksums
/// are taken while the other one is written. From the first full buffer on the writes go around the page cache
/// (O_DIRECT), because the cache would fill while the disk is idle, and empty while the caller waits. A file system
/// that refuses O_DIRECT gets plain writes, as do the bytes after the last multiple of kAlignment.
///
/// Failures are c10::Errors that name the path, the bytes written so far, and the cause. A file without keep() is
/// removed. Not thread-safe.
class BlockWriter {
 public:
  static constexpr std::size_t kBufferBytes = 2 << 20;
  /// Of memory, position and length of a direct write: no disk has larger sectors.
  static constexpr std::size_t kAlignment = 4096;

  /// Creates the file, which must not exist. `block_bytes`: how many bytes one checksum covers.
  BlockWriter(std::filesystem::path path, std::int64_t block_bytes);
  ~BlockWriter();
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;

  void write(const void* data, std::size_t bytes);
  /// Writes what is left, flushes the file to disk and closes it.
  WrittenFile keep();

 private:
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };

  void sum(const char* data, std::size_t bytes);
  void await_write();
  void put(const char* data, std::size_t bytes);
  void go_direct();
  void go_plain();

  const std::filesystem::path path_;
  const std::int64_t block_bytes_;
  int fd_ = -1;
  bool direct_ = false;
  WrittenFile written_;
  std::unique_ptr<char, Free> buffers_[2];
  int filling_ = 0;            // the buffer that write() fills
  std::size_t filled_ = 0;     // bytes in that buffer
  std::int64_t put_ = 0;       // bytes given to the file system
  std::future<void> writing_;  // of the other buffer
};

}  // namespace fsdp
