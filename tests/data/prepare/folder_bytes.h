#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "tests/temporary_folder.h"

namespace data::prepare::test {

/// The bytes of every file below a folder, by relative path.
inline std::map<std::string, std::string> bytes_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) {
      out[entry.path().lexically_relative(folder).native()] = ::test::read_file(entry.path());
    }
  }
  return out;
}

/// The names of the files that differ, for messages; empty if none does.
inline std::string differing(const std::map<std::string, std::string>& a, const std::map<std::string, std::string>& b) {
  std::string out;
  for (const auto& [name, bytes] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second != bytes) out += name + " ";
  }
  for (const auto& [name, bytes] : b) {
    if (!a.contains(name)) out += "+" + name + " ";
  }
  return out;
}

}  // namespace data::prepare::test
