#pragma once

#include <array>
#include <cstdio>
#include <filesystem>
#include <string>

#include "base/checksum.h"
#include "tests/temporary_folder.h"

namespace test {

/// Writes a manifest that a test has changed, with the checksum that the text of a checkpoint's manifest begins with.
/// `json` is an object, with or without a checksum at its beginning.
inline void write_manifest(const std::filesystem::path& path, const std::string& json) {
  const std::string head = R"({"crc32c": "00000000",)";
  const bool is_summed = json.starts_with(head.substr(0, head.find('0')));
  const std::string rest = json.substr(is_summed ? head.size() : 1);
  std::array<char, 9> digits{};
  std::snprintf(digits.data(), digits.size(), "%08x", base::crc32c(rest));
  write_file(path, std::string(head).replace(head.find('0'), 8, digits.data()) + rest);
}

}  // namespace test
