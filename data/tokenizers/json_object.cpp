#include "data/tokenizers/json_object.h"

#include <stdexcept>

#include "base/durable_file.h"

namespace data::tokenizers {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::uintmax_t kMaxBytes = 64 << 20;  // a configuration lists each added token

}  // namespace

void JsonObject::refuse(const std::string& key, const Json& value, const char* wanted) const {
  throw std::runtime_error(path.string() + ": " + key + " is " + value.type_name() + ", want " + wanted);
}

std::optional<std::string> JsonObject::text(const char* key, std::optional<std::string> usual) const {
  const auto found = members.find(key);
  if (found == members.end() || found->is_null()) return usual;
  if (!found->is_string()) refuse(key, *found, "a text");
  return found->get<std::string>();
}

bool JsonObject::flag(const char* key, bool usual) const {
  const auto found = members.find(key);
  if (found == members.end() || found->is_null()) return usual;
  if (!found->is_boolean()) refuse(key, *found, "true or false");
  return found->get<bool>();
}

JsonObject read_object(const fs::path& path) {
  JsonObject object{path, Json::object()};
  if (!fs::exists(path)) return object;
  const std::string text = base::read_whole_file(path, kMaxBytes);
  object.members = Json::parse(text, nullptr, false);
  if (!object.members.is_object()) {
    throw std::runtime_error(path.string() +
                             ": want a JSON object; save the tokenizer by transformers again, or remove the file");
  }
  return object;
}

std::optional<std::string> token_text(const JsonObject& object, const std::string& key, const Json& value) {
  if (value.is_null()) return std::nullopt;
  const Json& text = value.is_object() && value.contains("content") ? value.at("content") : value;
  if (!text.is_string()) object.refuse(key, value, "a text");
  return text.get<std::string>();
}

}  // namespace data::tokenizers
