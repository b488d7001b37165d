#include "data/tokenizers/utf8.h"

#include <cstddef>

namespace data::tokenizers {
namespace {

struct Part {
  std::size_t bytes;
  bool is_valid;
};

/// The character at the front of the text, or the invalid part there. The text is not empty. The limits of the second
/// byte are those of table 3-7 in the Unicode standard.
Part first_part(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {1, true};
  if (first < 0xC2 || first > 0xF4) return {1, false};
  const std::size_t size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < size; ++i) {
    if (i == text.size()) return {i, false};
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte < low || byte > high) return {i, false};
    low = 0x80;
    high = 0xBF;
  }
  return {size, true};
}

}  // namespace

std::string repaired(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const auto part = first_part(text);
    result += part.is_valid ? text.substr(0, part.bytes) : std::string_view("\xEF\xBF\xBD");
    text.remove_prefix(part.bytes);
  }
  return result;
}

}  // namespace data::tokenizers
