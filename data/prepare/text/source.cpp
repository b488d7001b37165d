#include "data/prepare/text/source.h"

#include <algorithm>
#include <stdexcept>

namespace data::prepare {

ItemRange items_of_part(std::int64_t part, std::int64_t items, std::int64_t items_a_part) {
  const auto parts = parts_of(items, items_a_part);
  if (part < 0 || part >= parts) {
    throw std::out_of_range("part " + std::to_string(part) + ": the source has " + std::to_string(parts) + " parts");
  }
  return {part * items_a_part, std::min(items, (part + 1) * items_a_part)};
}

void check_range(std::string_view what, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  throw std::runtime_error(std::string(what) + " = " + std::to_string(value) + ": want " + std::to_string(least) +
                           " to " + std::to_string(most));
}

std::string one_line(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      if (!out.empty() && out.back() != ' ') out += ' ';
    } else {
      out += c;
    }
  }
  if (out.ends_with(' ')) out.pop_back();
  return out;
}

std::string_view cut_text(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  std::size_t end = bytes;
  for (int back = 0; back < 3 && end > 0 && (static_cast<std::uint8_t>(text[end]) & 0xc0) == 0x80; ++back) --end;
  return text.substr(0, end);
}

}  // namespace data::prepare
