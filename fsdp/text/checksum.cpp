#include "fsdp/text/checksum.h"

#include <array>
#include <cstring>

namespace fsdp {
namespace {

// Slicing by 8: table[k][b] is the checksum of byte b followed by k zero bytes.
using Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  constexpr std::uint32_t kPolynomial = 0x82F63B78;  // Castagnoli, bits reversed
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < tables.size(); ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xFF];
  return tables;
}

constexpr Tables kTables = make_tables();

std::uint32_t portable(const unsigned char* data, std::size_t bytes, std::uint32_t crc) {
  for (; bytes >= 8; bytes -= 8, data += 8) {
    std::uint32_t next = 0;
    for (int k = 0; k < 4; ++k) {
      next ^= kTables[7 - k][((crc >> (8 * k)) & 0xFF) ^ data[k]];
      next ^= kTables[3 - k][data[4 + k]];
    }
    crc = next;
  }
  for (; bytes > 0; --bytes, ++data) crc = (crc >> 8) ^ kTables[0][(crc ^ *data) & 0xFF];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t by_instruction(const unsigned char* data, std::size_t bytes,
                                                               std::uint32_t crc) {
  std::uint64_t wide = crc;
  for (; bytes >= 8; bytes -= 8, data += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, 8);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  auto narrow = static_cast<std::uint32_t>(wide);
  for (; bytes > 0; --bytes, ++data) narrow = __builtin_ia32_crc32qi(narrow, *data);
  return narrow;
}
#endif

}  // namespace

std::uint32_t crc32c(const void* data, std::size_t bytes, std::uint32_t crc) {
  const auto* first = static_cast<const unsigned char*>(data);
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return ~by_instruction(first, bytes, ~crc);
#endif
  return ~portable(first, bytes, ~crc);
}

std::uint32_t crc32c_portable(const void* data, std::size_t bytes, std::uint32_t crc) {
  return ~portable(static_cast<const unsigned char*>(data), bytes, ~crc);
}

}  // namespace fsdp
