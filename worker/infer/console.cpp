#include "worker/infer/console.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>

namespace infer {
namespace {

/// Bytes of the control character at the beginning of valid UTF-8; 0: there is none. C1 controls have two bytes.
std::size_t control_bytes(std::string_view text) {
  const auto byte = static_cast<unsigned char>(text[0]);
  if (byte == '\t' || byte == '\n') return 0;
  if (byte < 0x20 || byte == 0x7F) return 1;
  const bool is_c1 = byte == 0xC2 && text.size() > 1 && static_cast<unsigned char>(text[1]) < 0xA0;
  return is_c1 ? 2 : 0;
}

}  // namespace

void show(const Console& console, std::string_view text) {
  if (!console.out_is_terminal) {
    console.out << text;
    return;
  }
  std::string safe;
  while (!text.empty()) {
    const std::size_t control = control_bytes(text);
    if (control > 0) {
      safe += "\uFFFD";
    } else {
      safe += text[0];
    }
    text.remove_prefix(std::max<std::size_t>(1, control));
  }
  console.out << safe << std::flush;
}

void finish(const Console& console) {
  console.out << std::flush;
  if (!console.out) throw std::runtime_error("cannot write the results; is the disk full?");
}

}  // namespace infer
