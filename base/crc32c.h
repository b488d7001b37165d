#pragma once

#include <cstdint>
#include <string_view>

namespace base {

/// CRC-32C (Castagnoli) of the bytes. To continue over more bytes, pass the last result as `before`. Uses the SSE4.2
/// instruction where the processor has it.
std::uint32_t crc32c(std::string_view bytes, std::uint32_t before = 0);
/// The same checksum in plain C++, for other processors and for tests.
std::uint32_t crc32c_portable(std::string_view bytes, std::uint32_t before = 0);
/// As TFRecord files have it.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace base
