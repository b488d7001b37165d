#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fd.h"

namespace fsdp {

/// The entry of one tensor in a safetensors header.
struct TensorEntry {
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape;
  /// Byte range in the data part.
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// A safetensors file, opened for reading. The constructor checks the whole header: sizes, dtypes, shapes against byte
/// ranges, no holes, no overlaps, no bytes after the last tensor. A hostile file causes a c10::Error that names the
/// file and the finding, never a bad access.
///
/// read() needs no memory but its result. tensor() maps the file at its first call, so it needs the whole file in the
/// address space. A file that is truncated *while* it is mapped can cause a fault. Not thread-safe.
class SafetensorsReader {
 public:
  static constexpr std::int64_t kMaxHeaderBytes = 100'000'000;

  explicit SafetensorsReader(const std::filesystem::path& path);
  ~SafetensorsReader();
  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;

  const std::map<std::string, TensorEntry, std::less<>>& entries() const { return entries_; }
  /// The header's "__metadata__".
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool contains(std::string_view name) const { return entries_.find(name) != entries_.end(); }

  /// The tensor, without a copy. It aliases the read-only mapping, so do not write to it, and do not use it after the
  /// reader is gone. A tensor whose bytes are not aligned for its dtype is copied. Throws c10::Error naming a missing
  /// tensor.
  at::Tensor tensor(std::string_view name) const;

  std::int64_t file_bytes() const { return bytes_; }
  /// Where the tensors' bytes begin, which is how many bytes the header takes.
  std::int64_t data_offset() const { return data_offset_; }
  /// Throws c10::Error naming a missing tensor.
  const TensorEntry& entry(std::string_view name) const;
  /// Elements of a tensor.
  std::int64_t numel(std::string_view name) const;
  /// Reads bytes of the file. Throws c10::Error naming the file, the place and the cause.
  void read_bytes(void* into, std::int64_t bytes, std::int64_t offset) const;

  /// Reads elements [begin, begin + values.numel()) of the flattened tensor into `values`, contiguous on the CPU, and
  /// converts them to its dtype through a buffer of kReadBytes. Throws c10::Error naming a missing tensor, a range
  /// outside of it, or why the file cannot be read.
  void read(std::string_view name, std::int64_t begin, const at::Tensor& values) const;
  static constexpr std::int64_t kReadBytes = 4 << 20;

 private:
  void parse_header();
  const char* mapped() const;

  std::filesystem::path path_;
  base::Fd fd_;
  mutable const char* mapped_ = nullptr;
  std::int64_t bytes_ = 0;
  std::int64_t data_offset_ = 0;
  std::map<std::string, TensorEntry, std::less<>> entries_;
  std::map<std::string, std::string> metadata_;
};

/// How many bytes of a file one checksum covers, unless the writer chooses another number. A reader of a part reads at
/// most this much around it.
inline constexpr std::int64_t kBlockBytes = 16 << 20;

/// Sizes and checksums (CRC-32C) of a written file. They suffice to recognise the file later, or any part of it.
struct WrittenFile {
  std::int64_t bytes = 0;
  std::int64_t header_bytes = 0;  // before the tensors' bytes
  std::uint32_t header_checksum = 0;
  std::int64_t block_bytes = kBlockBytes;
  std::vector<std::uint32_t> blocks;  // the last block may be shorter
};

/// A tensor that will be written.
struct TensorPlan {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<std::int64_t> shape;
};

class BlockWriter;

/// Writes a new safetensors file tensor by tensor, through two buffers (see fsdp/files/safetensors.h). Spaces pad the
/// header to a multiple of 8 bytes. Every call throws c10::Error naming path and cause (disk full, read-only, file
/// exists). A file without finish() is removed. Not thread-safe.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorPlan>& tensors,
                    const std::map<std::string, std::string>& metadata = {}, std::int64_t block_bytes = kBlockBytes);
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// Writes the next planned tensor, which has the planned dtype and shape.
  void append(const at::Tensor& tensor);
  /// Fsyncs and closes the file after the last tensor.
  WrittenFile finish();

 private:
  std::vector<TensorPlan> plan_;
  std::size_t next_ = 0;
  std::unique_ptr<BlockWriter> file_;
  std::int64_t header_bytes_ = 0;
  std::uint32_t header_checksum_ = 0;
};

/// Writes a new safetensors file and fsyncs it, as SafetensorsWriter does. Tensors are written in the given order, one
/// at a time through host memory.
WrittenFile write_safetensors(const std::filesystem::path& path,
                              const std::vector<std::pair<std::string, at::Tensor>>& tensors,
                              const std::map<std::string, std::string>& metadata = {},
                              std::int64_t block_bytes = kBlockBytes);

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
  /// Alignment of memory, position and length of a direct write: no disk has larger sectors.
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
  base::Fd fd_;
  bool direct_ = false;
  WrittenFile written_;
  std::unique_ptr<char, Free> buffers_[2];
  int filling_ = 0;            // the buffer that write() fills
  std::size_t filled_ = 0;     // bytes in that buffer
  std::int64_t put_ = 0;       // bytes given to the file system
  std::future<void> writing_;  // of the other buffer
};

}  // namespace fsdp
