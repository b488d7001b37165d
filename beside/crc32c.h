#pragma once

#include <cstdint>
#include <string_view>

namespace beside {

/// CRC-32C (Castagnoli) of the bytes.
std::uint32_t crc32c(std::string_view bytes);
/// As TFRecord files have it.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace beside
