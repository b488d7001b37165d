#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "fsdp/files/checkpoint_manifest.h"
#include "fsdp/files/safetensors.h"

// The parts of a checkpoint's files that a rank reads.

namespace fsdp {

/// One rank's file of a checkpoint, opened for reading. Failures are CheckpointErrors or c10::Errors that name the
/// file, and the damaged block with its bytes. Not thread-safe.
class SavedFile {
 public:
  /// Compares the header with its checksum, and the whole file in versions 1 and 2. `verify` false compares nothing.
  SavedFile(const std::filesystem::path& path, SavedSums sums, bool verify);

  const SafetensorsReader& reader() const { return reader_; }

  /// Compares the blocks that hold elements [begin, begin + count) of a tensor with their checksums, each block once.
  void verify(std::string_view key, std::int64_t begin, std::int64_t count);
  void verify_all();
  /// Reads elements of the flattened tensor, as SafetensorsReader::read(). Call verify() for them first.
  void read(std::string_view key, std::int64_t begin, const at::Tensor& values);

  /// Bytes read so far, headers included.
  std::int64_t bytes_read() const { return bytes_read_; }

 private:
  void verify_block(std::size_t block, std::vector<char>& buffer);
  void verify_bytes(std::int64_t first, std::int64_t last);

  std::string name_;
  SafetensorsReader reader_;
  SavedSums sums_;
  bool verify_;
  std::vector<bool> verified_;  // blocks
  std::int64_t bytes_read_ = 0;
};

}  // namespace fsdp
