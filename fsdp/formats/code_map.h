#pragma once
#include <array>
#include <cstdint>

namespace fsdp {

/// A dynamic map of 8 bits (Dettmers, 8-Bit Approximations for Parallelism in Deep Learning, arXiv 1511.04561): values
/// from -1 or 0 to 1, of which each power of ten has its share. bitsandbytes and torchao have the same map, computed in
/// fp32, so a value of theirs may differ in its last bit.
struct CodeMap {
  static constexpr int kCodes = 256;
  explicit CodeMap(bool is_signed);

  std::array<float, kCodes> values{};
  std::array<float, kCodes> middles{};  // between a code and the next; infinite after the last
  // By the first 16 bits of a number: the code of the smallest such number. At most one middle lies between such.
  std::array<std::int32_t, 1 << 16> lowest{};
};
/// The map with signs has values from -0.993 to 1, and the one without from 0 to 1.
const CodeMap& code_map(bool is_signed);

}  // namespace fsdp
