#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace data::tokenizers {

/// A JSON object and where it was read. Without the file it has no members.
struct JsonObject {
  std::filesystem::path path;
  nlohmann::json members = nlohmann::json::object();

  /// Throws std::runtime_error: PATH: `key` is a TYPE, want WANTED.
  [[noreturn]] void refuse(const std::string& key, const nlohmann::json& value, const char* wanted) const;
  /// `usual` if the member is missing or null. Throws std::runtime_error that names the file if it is no text.
  std::optional<std::string> text(const char* key, std::optional<std::string> usual = {}) const;
  /// Returns a member that is true or false in the same way.
  bool flag(const char* key, bool usual) const;
};

/// Throws std::runtime_error that names the path if the file can't be read or holds no JSON object.
JsonObject read_object(const std::filesystem::path& path);

/// The text of a token: a text, or the "content" of an object. Null means that the tokenizer has none.
/// `key` names the token in an error.
std::optional<std::string> token_text(const JsonObject& object, const std::string& key, const nlohmann::json& value);

}  // namespace data::tokenizers
