#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/reflection.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "spec/jobfile/job_keys.h"

namespace jobfile {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MessageFactory;
using google::protobuf::Reflection;

/// A field, and what reads it in a message of its type. A message asks a lock for its reflection each time.
struct Field {
  const FieldDescriptor* descriptor = nullptr;
  const Reflection* reflection = nullptr;
};

/// A field and the message that holds it.
template <typename Holder>
struct Place {
  Holder* message = nullptr;
  const FieldDescriptor* field = nullptr;
  const Reflection* reflection = nullptr;
};

/// The fields from a message of type `root` down to the key's.
using Path = std::vector<Field>;

Path look_up(const Descriptor& root, const Key& key) {
  const auto whole_path = path_of(key);
  std::string_view names = whole_path;
  Path path;
  for (const auto* type = &root;; type = path.back().descriptor->message_type()) {
    const auto dot = names.find('.');
    path.push_back({type->FindFieldByName(std::string(names.substr(0, dot))),
                    MessageFactory::generated_factory()->GetPrototype(type)->GetReflection()});
    // A key names a field that the message lacks; every test fails then.
    if (path.back().descriptor == nullptr) std::abort();
    if (dot == std::string_view::npos) return path;
    names.remove_prefix(dot + 1);
  }
}

/// The path of look_up(), looked up once: a sweep asks for a hundred keys of each of its jobs. Rows stay where they
/// are, so a row is known by its address. The name tells whether another key has come to that address.
const Path& find_path(const Descriptor& root, const Key& key) {
  struct Known {
    const Descriptor* root = nullptr;
    std::string name;
    Path path;
  };
  thread_local std::unordered_map<const Key*, Known> known;
  auto& at = known[&key];
  if (at.root != &root || at.name != key.name) at = {&root, std::string(key.name), look_up(root, key)};
  return at.path;
}

/// The place of the key in the message. Creates missing messages on the path if the message can be changed. Otherwise
/// the place has no message if one is missing.
template <typename Holder>
Place<Holder> find_place(Holder& root, const Key& key) {
  const auto& path = find_path(*root.GetDescriptor(), key);
  auto* message = &root;
  for (std::size_t i = 0; i + 1 < path.size(); ++i) {
    const auto& [field, reflection] = path[i];
    if constexpr (!std::is_const_v<Holder>) {
      message = reflection->MutableMessage(message, field);
    } else {
      if (!reflection->HasField(*message, field)) return {};
      message = &reflection->GetMessage(*message, field);
    }
  }
  return {message, path.back().descriptor, path.back().reflection};
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

using Values = google::protobuf::Map<std::string, muster::v1::Value>;

/// True for a plain key of [slurm], and for a recipe's key, except the two that choose the recipe: kind and family.
bool is_slurm_value(const Key& key) {
  return key.name.starts_with("slurm.") && is_plain(key);
}
bool is_recipe_value(const Key& key) {
  return is_recipe_key(key) && key.name != spec::recipe_key().name && key.name != spec::family_key().name;
}

/// The map that has the key's value; null: a field of its own has it.
const Values* values_with(const muster::v1::JobSpec& spec, const Key& key) {
  if (is_slurm_value(key)) return &spec.slurm().values();
  return is_recipe_value(key) ? &spec.recipe().values() : nullptr;
}
Values* values_with(muster::v1::JobSpec& spec, const Key& key) {
  if (is_slurm_value(key)) return spec.mutable_slurm()->mutable_values();
  return is_recipe_value(key) ? spec.mutable_recipe()->mutable_values() : nullptr;
}

}  // namespace

std::optional<Value> get(const Message& root, const Key& key) {
  if (!is_plain(key)) return std::nullopt;
  const auto [message, field, reflection] = find_place(root, key);
  if (message == nullptr || !reflection->HasField(*message, field)) return std::nullopt;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->GetBool(*message, field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return std::int64_t{reflection->GetUInt32(*message, field)};
    case FieldDescriptor::CPPTYPE_INT32:
      return std::int64_t{reflection->GetInt32(*message, field)};
    case FieldDescriptor::CPPTYPE_INT64:
      return std::int64_t{reflection->GetInt64(*message, field)};
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection->GetString(*message, field);
    default:
      std::abort();  // no key has a field of another type
  }
}

std::optional<Value> get(const muster::v1::JobSpec& spec, const Key& key) {
  const auto* values = values_with(spec, key);
  if (values == nullptr) return get(static_cast<const Message&>(spec), key);
  const auto found = values->find(std::string(key.name));
  return found == values->end() ? std::nullopt : value_of(found->second);
}

void set(Message& root, const Key& key, const Value& value) {
  const auto [message, field, reflection] = find_place(root, key);
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection->SetBool(message, field, std::get<bool>(value));
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection->SetUInt32(message, field, static_cast<std::uint32_t>(std::get<std::int64_t>(value)));
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection->SetInt32(message, field, static_cast<std::int32_t>(std::get<std::int64_t>(value)));
    case FieldDescriptor::CPPTYPE_INT64:
      return reflection->SetInt64(message, field, std::get<std::int64_t>(value));
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection->SetString(message, field, std::get<std::string>(value));
    default:
      std::abort();
  }
}

void set(muster::v1::JobSpec& spec, const Key& key, const Value& value) {
  // A value that asks Slurm for nothing is left out.
  if (is_slurm_value(key) && (value == Value(false) || value == Value(std::string()))) return clear(spec, key);
  if (auto* values = values_with(spec, key)) {
    (*values)[std::string(key.name)] = message_of(value);
  } else {
    set(static_cast<Message&>(spec), key, value);
  }
}

void add(Message& root, const Key& key, const std::string& text) {
  const auto [message, field, reflection] = find_place(root, key);
  reflection->AddString(message, field, text);
}

std::vector<std::string> texts_of(const Message& root, const Key& key) {
  const auto [message, field, reflection] = find_place(root, key);
  if (message == nullptr) return {};
  const auto texts = reflection->GetRepeatedFieldRef<std::string>(*message, field);
  return {texts.begin(), texts.end()};
}

const Texts& texts_by_name(const muster::v1::JobSpec& spec, const Key& key) {
  if (key.kind == Kind::kOptions) return spec.slurm().options();
  if (key.kind == Kind::kPatterns) return spec.report().log();
  return key.name == "env" ? spec.env() : spec.submitted_env();
}

Texts& texts_by_name(muster::v1::JobSpec& spec, const Key& key) {
  if (key.kind == Kind::kOptions) return *spec.mutable_slurm()->mutable_options();
  if (key.kind == Kind::kPatterns) return *spec.mutable_report()->mutable_log();
  return key.name == "env" ? *spec.mutable_env() : *spec.mutable_submitted_env();
}

void clear(Message& root, const Key& key) {
  const auto [message, field, reflection] = find_place(root, key);
  reflection->ClearField(message, field);
}

void clear(muster::v1::JobSpec& spec, const Key& key) {
  if (auto* values = values_with(spec, key)) {
    values->erase(std::string(key.name));
  } else {
    clear(static_cast<Message&>(spec), key);
  }
}

std::string slurm_text(const muster::v1::JobSpec& spec, const std::string& name) {
  const auto found = spec.slurm().values().find("slurm." + name);
  return found == spec.slurm().values().end() ? std::string() : found->second.text();
}

std::int64_t slurm_whole(const muster::v1::JobSpec& spec, const std::string& name) {
  const auto found = spec.slurm().values().find("slurm." + name);
  return found == spec.slurm().values().end() ? 0 : found->second.whole();
}

void set_slurm_text(muster::v1::JobSpec& spec, const std::string& name, const std::string& text) {
  set(spec, *find_key("slurm." + name), text);
}

std::int64_t whole_of(const muster::v1::Recipe& recipe, const std::string& name) {
  const auto found = recipe.values().find(name);
  return found == recipe.values().end() ? 0 : found->second.whole();
}

std::vector<const spec::Table*> tables_of(const muster::v1::Recipe& recipe) {
  return spec::tables_of(recipe.kind(), recipe.family());
}

spec::Values values_of(const muster::v1::JobSpec& spec, const std::vector<const spec::Table*>& tables) {
  spec::Values values;
  for (const auto* table : tables) {
    for (const auto& key : table->keys) {
      const auto given = get(spec, key);
      if (const auto value = given ? spec::as_kind(key, *given) : std::nullopt) values.set(key.name, *value);
    }
  }
  return values;
}

bool is_plain(const Key& key) {
  return spec::is_plain(key.kind) && key.name != "extends";
}

std::string path_of(const Key& key) {
  if (key.name == spec::recipe_key().name) return "recipe.kind";
  if (key.name == spec::family_key().name) return "recipe.family";
  if (key.name == "command") return "command.argv";
  if (key.name == "default") return "is_default";  // a key of partitions
  const auto* unit = key.kind == Kind::kDuration ? "_ms" : key.kind == Kind::kSize ? "_bytes" : "";
  return std::string(key.name) + unit;
}

std::uint32_t gpus_of_rank(const muster::v1::JobSpec& spec) {
  return spec.resources().gpus_per_rank();
}

}  // namespace jobfile
