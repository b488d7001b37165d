#pragma once

#include <filesystem>
#include <fstream>
#include <string>

namespace base {

/// The first word of a file, such as one of /sys; empty: it has none, or cannot be read.
inline std::string first_word(const std::filesystem::path& file) {
  std::string word;
  std::ifstream(file) >> word;
  return word;
}

}  // namespace base
