#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "jobfile/job_keys.h"
#include "schema/recipes.h"

namespace jobfile {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

/// A field and the message that holds it. With `create`, missing messages on the path are created. Without, the message
/// is null if one is missing.
struct Place {
  const Message* message = nullptr;
  Message* writable = nullptr;
  const FieldDescriptor* field = nullptr;
};

Place find_place(const Message& root, Message* writable, const std::string& whole_path) {
  std::string_view path = whole_path;
  const Message* message = &root;
  for (;;) {
    const auto dot = path.find('.');
    const auto* field = message->GetDescriptor()->FindFieldByName(std::string(path.substr(0, dot)));
    if (field == nullptr) std::abort();  // job_keys() names a field that the message lacks; every test fails then
    if (dot == std::string_view::npos) return {message, writable, field};
    const auto* reflection = message->GetReflection();
    if (writable != nullptr) {
      message = writable = reflection->MutableMessage(writable, field);
    } else {
      if (!reflection->HasField(*message, field)) return {};
      message = &reflection->GetMessage(*message, field);
    }
    path.remove_prefix(dot + 1);
  }
}

bool is_read_by_the_parser_alone(const Key& key) {
  return key.name == "extends" || key.name == "sweep";
}

/// The recipe's value of this key; null: the recipe does not have it. The kind and the family are fields of their own.
const muster::v1::Value* recipe_value(const muster::v1::JobSpec& spec, const Key& key) {
  const auto& values = spec.recipe().values();
  const auto found = values.find(std::string(key.name));
  return found == values.end() ? nullptr : &found->second;
}

std::optional<Value> value_of(const muster::v1::Value& value) {
  switch (value.kind_case()) {
    case muster::v1::Value::kFlag:
      return value.flag();
    case muster::v1::Value::kWhole:
      return value.whole();
    case muster::v1::Value::kReal:
      return value.real();
    case muster::v1::Value::kText:
      return value.text();
    case muster::v1::Value::KIND_NOT_SET:
      break;
  }
  return std::nullopt;
}

muster::v1::Value message_of(const Value& value) {
  muster::v1::Value message;
  if (const auto* flag = std::get_if<bool>(&value)) message.set_flag(*flag);
  if (const auto* whole = std::get_if<std::int64_t>(&value)) message.set_whole(*whole);
  if (const auto* real = std::get_if<double>(&value)) message.set_real(*real);
  if (const auto* text = std::get_if<std::string>(&value)) message.set_text(*text);
  return message;
}

/// True for a recipe's key, except the two that choose the recipe: kind and family.
bool is_recipe_value(const Key& key) {
  return is_recipe_key(key) && key.name != schema::recipe_key().name && key.name != schema::family_key().name;
}

}  // namespace

std::optional<Value> get(const muster::v1::JobSpec& spec, const Key& field) {
  if (!is_plain(field)) return std::nullopt;
  if (is_recipe_value(field)) {
    const auto* value = recipe_value(spec, field);
    return value == nullptr ? std::nullopt : value_of(*value);
  }
  const auto [message, writable, descriptor] = find_place(spec, nullptr, path_of(field));
  if (message == nullptr || !message->GetReflection()->HasField(*message, descriptor)) return std::nullopt;
  const auto* reflection = message->GetReflection();
  switch (descriptor->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->GetBool(*message, descriptor);
    case FieldDescriptor::CPPTYPE_UINT32:
      return std::int64_t{reflection->GetUInt32(*message, descriptor)};
    case FieldDescriptor::CPPTYPE_INT32:
      return std::int64_t{reflection->GetInt32(*message, descriptor)};
    case FieldDescriptor::CPPTYPE_INT64:
      return std::int64_t{reflection->GetInt64(*message, descriptor)};
    case FieldDescriptor::CPPTYPE_UINT64: {
      // A value beyond int64 is out of every key's range.
      const auto number = reflection->GetUInt64(*message, descriptor);
      return number > static_cast<std::uint64_t>(INT64_MAX) ? INT64_MAX : static_cast<std::int64_t>(number);
    }
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection->GetDouble(*message, descriptor);
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection->GetString(*message, descriptor);
    default:
      std::abort();
  }
}

void set(muster::v1::JobSpec& spec, const Key& field, const Value& value) {
  if (is_recipe_value(field)) {
    (*spec.mutable_recipe()->mutable_values())[std::string(field.name)] = message_of(value);
    return;
  }
  const auto [message, writable, descriptor] = find_place(spec, &spec, path_of(field));
  const auto* reflection = message->GetReflection();
  switch (descriptor->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->SetBool(writable, descriptor, std::get<bool>(value));
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection->SetUInt32(writable, descriptor, static_cast<std::uint32_t>(std::get<std::int64_t>(value)));
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection->SetInt32(writable, descriptor, static_cast<std::int32_t>(std::get<std::int64_t>(value)));
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection->SetInt64(writable, descriptor, std::get<std::int64_t>(value));
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection->SetUInt64(writable, descriptor, static_cast<std::uint64_t>(std::get<std::int64_t>(value)));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection->SetDouble(writable, descriptor, std::get<double>(value));
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection->SetString(writable, descriptor, std::get<std::string>(value));
    default:
      std::abort();
  }
}

void add(muster::v1::JobSpec& spec, const Key& field, const std::string& text) {
  const auto [message, writable, descriptor] = find_place(spec, &spec, path_of(field));
  message->GetReflection()->AddString(writable, descriptor, text);
}

std::vector<std::string> texts_of(const muster::v1::JobSpec& spec, const Key& field) {
  const auto [message, writable, descriptor] = find_place(spec, nullptr, path_of(field));
  std::vector<std::string> texts;
  if (message == nullptr) return texts;
  const auto* reflection = message->GetReflection();
  for (int i = 0; i < reflection->FieldSize(*message, descriptor); ++i) {
    texts.push_back(reflection->GetRepeatedString(*message, descriptor, i));
  }
  return texts;
}

std::map<std::string, std::string> texts_by_name(const muster::v1::JobSpec& spec, const Key& field) {
  const auto [message, writable, descriptor] = find_place(spec, nullptr, path_of(field));
  std::map<std::string, std::string> texts;
  if (message == nullptr) return texts;
  const auto* reflection = message->GetReflection();
  for (int i = 0; i < reflection->FieldSize(*message, descriptor); ++i) {
    const auto& entry = reflection->GetRepeatedMessage(*message, descriptor, i);
    const auto* type = entry.GetDescriptor();
    texts[entry.GetReflection()->GetString(entry, type->map_key())] =
        entry.GetReflection()->GetString(entry, type->map_value());
  }
  return texts;
}

void set_text(muster::v1::JobSpec& spec, const Key& field, const std::string& name, const std::string& text) {
  const auto [message, writable, descriptor] = find_place(spec, &spec, path_of(field));
  const auto* reflection = message->GetReflection();
  Message* entry = nullptr;
  for (int i = 0; i < reflection->FieldSize(*writable, descriptor); ++i) {
    auto* known = reflection->MutableRepeatedMessage(writable, descriptor, i);
    if (known->GetReflection()->GetString(*known, known->GetDescriptor()->map_key()) == name) entry = known;
  }
  if (entry == nullptr) entry = reflection->AddMessage(writable, descriptor);
  entry->GetReflection()->SetString(entry, entry->GetDescriptor()->map_key(), name);
  entry->GetReflection()->SetString(entry, entry->GetDescriptor()->map_value(), text);
}

void clear(muster::v1::JobSpec& spec, const Key& field) {
  if (is_recipe_value(field)) {
    spec.mutable_recipe()->mutable_values()->erase(std::string(field.name));
    return;
  }
  const auto [message, writable, descriptor] = find_place(spec, &spec, path_of(field));
  message->GetReflection()->ClearField(writable, descriptor);
}

std::int64_t whole_of(const muster::v1::Recipe& recipe, const std::string& name) {
  const auto found = recipe.values().find(name);
  return found == recipe.values().end() ? 0 : found->second.whole();
}

bool is_plain(const Key& key) {
  return schema::is_plain(key.kind) && !is_read_by_the_parser_alone(key);
}

std::string path_of(const Key& key) {
  if (key.name == schema::recipe_key().name) return "recipe.kind";
  if (key.name == schema::family_key().name) return "recipe.family";
  if (key.name == "command") return "command.argv";
  if (key.name == "default") return "is_default";  // a key of partitions
  const auto* unit = key.kind == Kind::kDuration ? "_ms" : key.kind == Kind::kSize ? "_bytes" : "";
  return std::string(key.name) + unit;
}

}  // namespace jobfile
