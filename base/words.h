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
