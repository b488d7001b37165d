#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace base {

/// The first word of a file, such as one of /sys; empty: it has none, or cannot be read.
inline std::string first_word(const std::filesystem::path& file) {
  std::string word;
  std::ifstream(file) >> word;
  return word;
}

/// The text without white space at both ends.
std::string_view trimmed(std::string_view text);
/// The text with every `from` replaced.
std::string replaced(std::string text, std::string_view from, std::string_view to);

/// The parts between the separators; an empty text has none.
std::vector<std::string> split(std::string_view text, char at);

/// Adds a text to a list of texts, behind `between` if it is not the first.
void append(std::string& list, std::string_view text, std::string_view between = ", ");
/// The texts with `between` between them. Empty ones at the beginning leave no separator: not for lines of a file.
template <typename Texts>
std::string joined(const Texts& texts, std::string_view between = ", ") {
  std::string list;
  for (const auto& text : texts) append(list, text, between);
  return list;
}

/// The text with its ASCII letters in lower case.
std::string lower_case(std::string_view text);

/// The name that `wrong` most likely stands for. Empty if no name is near: about one letter in three may be wrong.
std::string nearest(std::string_view wrong, const std::vector<std::string>& names);

/// The length in bytes of the UTF-8 character at the front of the text; 0: there is no valid character. The text must
/// not be empty.
std::size_t character_bytes(std::string_view text);
/// True if the text is valid UTF-8. A protobuf message with any other text cannot be sent.
bool is_utf8(std::string_view text);
/// `text` with every byte that is not valid UTF-8 replaced by '?'.
std::string valid_utf8(std::string_view text);

}  // namespace base
