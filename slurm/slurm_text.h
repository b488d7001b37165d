#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slurm {

/// Parses the whole text as a decimal number. Returns nullopt for any other character or for a number out of range.
template <std::integral T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// The text without white space at both ends.
std::string_view trimmed(std::string_view text);

/// The parts between the separator characters. An empty text has no parts.
std::vector<std::string> split(std::string_view text, char at);

bool equal_without_case(std::string_view a, std::string_view b);

/// The text in small letters and with spaces. scontrol prints underscores where squeue prints spaces.
std::string plain_words(std::string text);

/// The text with every `from` replaced.
std::string replaced(std::string text, std::string_view from, std::string_view to);

/// The words joined, with `between` between them.
std::string joined(const std::vector<std::string>& words, std::string_view between);

}  // namespace slurm
