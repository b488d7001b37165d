#include "fsdp/formats/code_map.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace fsdp {

CodeMap::CodeMap(bool is_signed) {
  constexpr int kPowers = 7;
  std::vector<double> all = {0, 1};
  for (int power = 0; power < kPowers; ++power) {
    const int count = 1 << (is_signed ? power : power + 1);
    for (int i = 0; i < count; ++i) {
      const double value = std::pow(10.0, power - kPowers + 1) * (0.1 + 0.9 * (i + 0.5) / count);
      all.push_back(value);
      if (is_signed) all.push_back(-value);
    }
  }
  std::sort(all.begin(), all.end());
  std::copy(all.begin(), all.end(), values.begin());
  for (std::size_t code = 0; code + 1 < kCodes; ++code) middles[code] = (values[code] + values[code + 1]) / 2;
  middles.back() = std::numeric_limits<float>::infinity();
  for (std::uint32_t top = 0; top < lowest.size(); ++top) {
    // The smallest value with these first bits: of the negative ones, the one with the largest magnitude.
    const bool is_negative = top >= lowest.size() / 2;
    const auto smallest = std::bit_cast<float>(top << 16 | (is_negative ? 0xffffu : 0));
    const auto above = std::upper_bound(middles.begin(), middles.end() - 1, smallest);
    lowest[top] = static_cast<std::int32_t>(above - middles.begin());
  }
}

const CodeMap& code_map(bool is_signed) {
  static const CodeMap with_signs(true), without(false);
  return is_signed ? with_signs : without;
}

}  // namespace fsdp
