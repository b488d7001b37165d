#pragma once
#include <cstddef>
#include <cstdint>

namespace fsdp {

/// CRC-32C (Castagnoli). Pass the result of the last call as `crc` to go on with more bytes. Uses the processor's own
/// instruction where there is one.
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t crc = 0);
/// The same in plain C++; for machines without the instruction and for tests.
std::uint32_t crc32c_portable(const void* data, std::size_t bytes, std::uint32_t crc = 0);

}  // namespace fsdp
