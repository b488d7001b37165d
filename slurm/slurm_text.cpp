#include "slurm/slurm_text.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

#include "slurm/batch_script.h"

namespace slurm {

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string> split(std::string_view text, char at) {
  std::vector<std::string> parts;
  if (text.empty()) return parts;
  for (;;) {
    const auto end = text.find(at);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool equal_without_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  return std::ranges::equal(a, b, {}, lower, lower);
}

std::string plain_words(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return c == '_' ? ' ' : static_cast<char>(std::tolower(c)); });
  return text;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  if (from.empty()) return text;
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  std::string all;
  for (const auto& word : words) {
    if (&word != &words.front()) all += between;
    all += word;
  }
  return all;
}

namespace {

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_@%+=:,./-").find(c) != std::string_view::npos;
}

}  // namespace

std::string shell_quote(const std::string& word) {
  if (!word.empty() && std::ranges::all_of(word, is_word_character)) return word;
  return "'" + replaced(word, "'", "'\"'\"'") + "'";
}

std::string bash_quote(const std::string& word) {
  if (!has_control(word)) return shell_quote(word);
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string quoted = "$'";
  for (const char c : word) {
    if (c == '\n') {
      quoted += "\\n";
    } else if (has_control({&c, 1})) {
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
