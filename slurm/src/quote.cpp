#include <array>
#include <string>
#include <string_view>

#include "slurm/batch_script.h"

namespace slurm {
namespace {

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_@%+=:,./-").find(c) != std::string_view::npos;
}

}  // namespace

std::string shell_quote(const std::string& word) {
  if (word.empty()) return "''";
  bool plain = true;
  for (const char c : word) plain = plain && is_word_character(c);
  if (plain) return word;
  std::string quoted = "'";
  for (const char c : word) {
    if (c == '\'') {
      quoted += "'\"'\"'";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

std::string bash_quote(const std::string& word) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  bool controls = false;
  for (const char c : word) controls = controls || is_control(c);
  if (!controls) return shell_quote(word);
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string quoted = "$'";
  for (const char c : word) {
    if (c == '\n') {
      quoted += "\\n";
    } else if (is_control(c)) {
      // An escape of three octal digits ends by itself. \x would also take a digit that follows.
      const auto value = static_cast<unsigned char>(c);
      quoted += {'\\', kHex[value >> 6], kHex[(value >> 3) & 7], kHex[value & 7]};
    } else if (c == '\'' || c == '\\') {
      quoted += {'\\', c};
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

}  // namespace slurm
