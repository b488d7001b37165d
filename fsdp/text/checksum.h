#pragma once
#include <cstddef>
#include <cstdint>

namespace fsdp {

/// CRC-32C (Castagnoli). To continue over more bytes, pass the last result as `crc`. Uses the SSE4.2 instruction where
/// the processor has it.
std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t crc = 0);
/// The same checksum in plain C++, for other processors and for tests.
std::uint32_t crc32c_portable(const void* data, std::size_t bytes, std::uint32_t crc = 0);

}  // namespace fsdp
