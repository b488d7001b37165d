#include "contract/attempt_set.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "contract/json_file.h"

namespace contract {
namespace {

constexpr const char* kAttempts = "attempts";

std::vector<std::string> attempts_in(const nlohmann::json& json) {
  std::vector<std::string> folders;
  if (!json.is_object() || !json.contains(kAttempts) || !json[kAttempts].is_array()) return folders;
  for (const auto& folder : json[kAttempts]) {
    folders.push_back(folder.is_string() ? folder.get<std::string>() : std::string());
  }
  return folders;
}

}  // namespace

std::string to_set_text(const std::vector<std::string>& attempt_folders) {
  return nlohmann::ordered_json{{"format", kFormat}, {kAttempts, attempt_folders}}.dump() + "\n";
}

std::vector<std::string> parse_set(std::string_view text) {
  return attempts_in(nlohmann::json::parse(text, nullptr, false));
}

std::filesystem::path attempt_of_set(const std::filesystem::path& set_file, std::size_t index) {
  const auto attempts = attempts_in(read_json_file(set_file));
  if (index >= attempts.size() || attempts[index].empty()) {
    throw std::runtime_error(set_file.string() + " has no attempt " + std::to_string(index));
  }
  return attempts[index];
}

}  // namespace contract
