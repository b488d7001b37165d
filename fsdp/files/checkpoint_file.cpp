#include "fsdp/files/checkpoint_file.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/crc32c.h"
#include "fsdp/files/checkpoint_folder.h"

namespace fsdp {
namespace {

constexpr std::int64_t kVerifyBytes = 1 << 20;  // read at a time

std::uint32_t checksum_of(const SafetensorsReader& file, std::int64_t begin, std::int64_t end,
                          std::vector<char>& buffer) {
  buffer.resize(kVerifyBytes);
  std::uint32_t sum = 0;
  while (begin < end) {
    const std::int64_t piece = std::min(kVerifyBytes, end - begin);
    file.read_bytes(buffer.data(), piece, begin);
    sum = base::crc32c({buffer.data(), static_cast<std::size_t>(piece)}, sum);
    begin += piece;
  }
  return sum;
}

}  // namespace

SavedFile::SavedFile(const std::filesystem::path& path, SavedSums sums, bool verify)
    : name_(path.filename().string()), reader_(path), sums_(std::move(sums)), verify_(verify) {
  bytes_read_ = reader_.data_offset();
  if (reader_.file_bytes() != sums_.bytes) fail(name_ + " has another size than the manifest says");
  verified_.resize(sums_.blocks.size());
  if (!verify_) return;
  std::vector<char> buffer;
  if (sums_.whole) {
    bytes_read_ += sums_.bytes;
    if (checksum_of(reader_, 0, sums_.bytes, buffer) != *sums_.whole)
      fail(name_ + " is corrupt: its checksum is not the manifest's");
    return;
  }
  bytes_read_ += reader_.data_offset();
  if (reader_.data_offset() != sums_.header_bytes ||
      checksum_of(reader_, 0, sums_.header_bytes, buffer) != sums_.header)
    fail(name_ + " is corrupt: the checksum of its header is not the manifest's");
}

void SavedFile::verify(std::string_view key, std::int64_t begin, std::int64_t count) {
  const TensorEntry& entry = reader_.entry(key);
  const auto size = static_cast<std::int64_t>(c10::elementSize(entry.dtype));
  const std::int64_t first = reader_.data_offset() + entry.begin + begin * size;
  if (count > 0) verify_bytes(first, first + count * size);
}

void SavedFile::verify_all() {
  verify_bytes(0, sums_.bytes);
}

void SavedFile::verify_bytes(std::int64_t first, std::int64_t last) {
  if (!verify_ || sums_.whole) return;
  std::vector<char> buffer;
  for (std::int64_t block = first / sums_.block_bytes; block * sums_.block_bytes < last; ++block)
    verify_block(static_cast<std::size_t>(block), buffer);
}

void SavedFile::verify_block(std::size_t block, std::vector<char>& buffer) {
  if (verified_[block]) return;
  const std::int64_t begin = static_cast<std::int64_t>(block) * sums_.block_bytes;
  const std::int64_t end = std::min(begin + sums_.block_bytes, sums_.bytes);
  bytes_read_ += end - begin;
  if (checksum_of(reader_, begin, end, buffer) != sums_.blocks[block])
    fail(name_ + " is corrupt in block " + std::to_string(block) + ", bytes " + std::to_string(begin) + " to " +
         std::to_string(end) + ": its checksum is not the manifest's");
  verified_[block] = true;
}

void SavedFile::read(std::string_view key, std::int64_t begin, const at::Tensor& values) {
  reader_.read(key, begin, values);
  bytes_read_ += values.numel() * static_cast<std::int64_t>(c10::elementSize(reader_.entry(key).dtype));
}

}  // namespace fsdp
