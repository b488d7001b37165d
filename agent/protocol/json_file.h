#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace agent::protocol {

/// The key "format" of the files that musterd and muster-task share.
inline constexpr int kFormat = 1;

/// A file that musterd wrote for muster-task. Throws std::runtime_error that names the file and what to do.
inline nlohmann::ordered_json read_json_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error(path.string() + " cannot be read; is this file system shared with musterd?");
  auto json = nlohmann::ordered_json::parse(in, nullptr, false);
  if (!json.is_object()) throw std::runtime_error(path.string() + " is damaged; requeue the job");
  if (json.value("format", 0) != kFormat) {
    throw std::runtime_error(path.string() + " is of another version of muster; use the muster-task of that musterd");
  }
  return json;
}

}  // namespace agent::protocol
