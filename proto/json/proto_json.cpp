#include "proto/json/proto_json.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "muster/v1/job.pb.h"

namespace proto {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using nlohmann::ordered_json;

// kSingular as an index reads and writes the singular field. Any other index means that element of a repeated field.
constexpr int kSingular = -1;

std::string valid_utf8(const std::string& text) {
  // Nearly every text is plain, and a sweep has a million of them.
  if (std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; })) return text;
  // dump() with `replace` lets the JSON library repair bad bytes.
  const auto dumped = nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return nlohmann::json::parse(dumped).get<std::string>();
}

void write(const Message& message, std::string& out);

ordered_json value_to_json(const Message& message, const FieldDescriptor* field, int index) {
  const Reflection* r = message.GetReflection();
  const bool one = index == kSingular;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return one ? r->GetInt32(message, field) : r->GetRepeatedInt32(message, field, index);
    case FieldDescriptor::CPPTYPE_INT64:
      return one ? r->GetInt64(message, field) : r->GetRepeatedInt64(message, field, index);
    case FieldDescriptor::CPPTYPE_UINT32:
      return one ? r->GetUInt32(message, field) : r->GetRepeatedUInt32(message, field, index);
    case FieldDescriptor::CPPTYPE_UINT64:
      return one ? r->GetUInt64(message, field) : r->GetRepeatedUInt64(message, field, index);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return one ? r->GetDouble(message, field) : r->GetRepeatedDouble(message, field, index);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return one ? r->GetFloat(message, field) : r->GetRepeatedFloat(message, field, index);
    case FieldDescriptor::CPPTYPE_BOOL:
      return one ? r->GetBool(message, field) : r->GetRepeatedBool(message, field, index);
    case FieldDescriptor::CPPTYPE_ENUM:
      return (one ? r->GetEnum(message, field) : r->GetRepeatedEnum(message, field, index))->name();
    case FieldDescriptor::CPPTYPE_STRING:
      return valid_utf8(one ? r->GetString(message, field) : r->GetRepeatedString(message, field, index));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return to_json(one ? r->GetMessage(message, field) : r->GetRepeatedMessage(message, field, index));
  }
  return nullptr;
}

ordered_json map_to_json(const Message& message, const FieldDescriptor* field) {
  ordered_json out = ordered_json::object();
  const Reflection* r = message.GetReflection();
  // Sorted, so that the same map always prints the same text.
  std::map<std::string, ordered_json> sorted;
  for (int i = 0; i < r->FieldSize(message, field); ++i) {
    const Message& entry = r->GetRepeatedMessage(message, field, i);
    const auto* type = entry.GetDescriptor();
    sorted[entry.GetReflection()->GetString(entry, type->map_key())] =
        value_to_json(entry, type->map_value(), kSingular);
  }
  for (auto& [key, value] : sorted) out[key] = std::move(value);
  return out;
}

// JSON groups a recipe's values into the tables of the job file. The store, run files and `muster show --json` all use
// this form.
ordered_json recipe_to_json(const muster::v1::Recipe& recipe) {
  ordered_json out = ordered_json::object();
  out["kind"] = valid_utf8(recipe.kind());
  out["model"]["family"] = valid_utf8(recipe.family());
  const std::map<std::string, muster::v1::Value> sorted(recipe.values().begin(), recipe.values().end());
  for (const auto& [key, value] : sorted) {
    const auto dot = key.find('.');
    auto& slot = dot == std::string::npos ? out[valid_utf8(key)]
                                          : out[valid_utf8(key.substr(0, dot))][valid_utf8(key.substr(dot + 1))];
    switch (value.kind_case()) {
      case muster::v1::Value::kFlag:
        slot = value.flag();
        break;
      case muster::v1::Value::kWhole:
        slot = value.whole();
        break;
      case muster::v1::Value::kReal:
        slot = value.real();
        break;
      case muster::v1::Value::kText:
        slot = valid_utf8(value.text());
        break;
      case muster::v1::Value::KIND_NOT_SET:
        slot = nullptr;
        break;
    }
  }
  return out;
}

/// A text as JSON has it.
void write_text(const std::string& text, std::string& out) {
  const bool is_plain = std::ranges::all_of(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && byte < 0x7F && c != '"' && c != '\\';
  });
  if (!is_plain) {
    out += nlohmann::json(valid_utf8(text)).dump();
    return;
  }
  out += '"';
  out += text;
  out += '"';
}

void write_value(const Message& message, const FieldDescriptor* field, int index, std::string& out) {
  const Reflection* r = message.GetReflection();
  const bool one = index == kSingular;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      out += std::to_string(one ? r->GetInt64(message, field) : r->GetRepeatedInt64(message, field, index));
      return;
    case FieldDescriptor::CPPTYPE_UINT32:
      out += std::to_string(one ? r->GetUInt32(message, field) : r->GetRepeatedUInt32(message, field, index));
      return;
    case FieldDescriptor::CPPTYPE_BOOL:
      out += (one ? r->GetBool(message, field) : r->GetRepeatedBool(message, field, index)) ? "true" : "false";
      return;
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string buffer;
      return write_text(one ? r->GetStringReference(message, field, &buffer)
                            : r->GetRepeatedStringReference(message, field, index, &buffer),
                        out);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return write(one ? r->GetMessage(message, field) : r->GetRepeatedMessage(message, field, index), out);
    default:
      out += value_to_json(message, field, index).dump();
  }
}

using Texts = google::protobuf::Map<std::string, std::string>;

/// A map of texts that each job of a sweep has; null: another map. Reflection copies a map into a list first.
const Texts* texts_in(const Message& message, const FieldDescriptor* field) {
  using muster::v1::JobSpec;
  if (const auto* spec = google::protobuf::DynamicCastToGenerated<JobSpec>(&message)) {
    if (field->number() == JobSpec::kEnvFieldNumber) return &spec->env();
    if (field->number() == JobSpec::kSubmittedEnvFieldNumber) return &spec->submitted_env();
  }
  const auto* element = google::protobuf::DynamicCastToGenerated<muster::v1::SweepElement>(&message);
  return element == nullptr ? nullptr : &element->settings();  // the only map there
}

void write_texts(const Texts& texts, std::string& out) {
  std::vector<const Texts::value_type*> sorted;
  sorted.reserve(texts.size());
  for (const auto& entry : texts) sorted.push_back(&entry);
  std::ranges::sort(sorted, {}, [](const auto* entry) -> const std::string& { return entry->first; });
  out += '{';
  for (const auto* entry : sorted) {
    if (out.back() != '{') out += ',';
    write_text(entry->first, out);
    out += ':';
    write_text(entry->second, out);
  }
  out += '}';
}

void write_map(const Message& message, const FieldDescriptor* field, std::string& out) {
  if (const auto* texts = texts_in(message, field)) return write_texts(*texts, out);
  const Reflection* r = message.GetReflection();
  std::map<std::string, const Message*> sorted;
  for (int i = 0; i < r->FieldSize(message, field); ++i) {
    const Message& entry = r->GetRepeatedMessage(message, field, i);
    sorted[entry.GetReflection()->GetString(entry, entry.GetDescriptor()->map_key())] = &entry;
  }
  out += '{';
  for (const auto& [key, entry] : sorted) {
    if (out.back() != '{') out += ',';
    write_text(key, out);
    out += ':';
    write_value(*entry, entry->GetDescriptor()->map_value(), kSingular, out);
  }
  out += '}';
}

void write(const Message& message, std::string& out) {
  if (const auto* recipe = google::protobuf::DynamicCastToGenerated<muster::v1::Recipe>(&message)) {
    out += recipe_to_json(*recipe).dump();
    return;
  }
  const Reflection* r = message.GetReflection();
  const auto* type = message.GetDescriptor();
  out += '{';
  bool is_first = true;
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    if (field->is_repeated() ? r->FieldSize(message, field) == 0 : !r->HasField(message, field)) continue;
    if (!std::exchange(is_first, false)) out += ',';
    out += '"';
    out += field->name();
    out += "\":";
    if (field->is_map()) {
      write_map(message, field, out);
    } else if (field->is_repeated()) {
      out += '[';
      for (int k = 0; k < r->FieldSize(message, field); ++k) {
        if (k > 0) out += ',';
        write_value(message, field, k, out);
      }
      out += ']';
    } else {
      write_value(message, field, kSingular, out);
    }
  }
  out += '}';
}

[[noreturn]] void fail(const std::string& path, const std::string& wanted, const ordered_json& got) {
  throw std::invalid_argument(path + ": want " + wanted + ", got " +
                              got.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).substr(0, 80));
}

template <typename T>
T integer(const ordered_json& json, const std::string& path) {
  if (json.is_number_unsigned()) {
    const auto value = json.get<std::uint64_t>();
    if (value <= static_cast<std::uint64_t>(std::numeric_limits<T>::max())) return static_cast<T>(value);
  } else if (json.is_number_integer()) {
    const auto value = json.get<std::int64_t>();
    if constexpr (std::numeric_limits<T>::is_signed) {
      if (value >= std::numeric_limits<T>::min() && value <= std::numeric_limits<T>::max())
        return static_cast<T>(value);
    }
  }
  fail(path,
       "a whole number from " + std::to_string(std::numeric_limits<T>::min()) + " to " +
           std::to_string(std::numeric_limits<T>::max()),
       json);
}

void fill(const ordered_json& json, Message& message, const std::string& path);

void set_value(Message& message, const FieldDescriptor* field, const ordered_json& json, const std::string& path,
               bool add) {
  const Reflection* r = message.GetReflection();
  const auto put = [&](auto set_it, auto add_it, auto value) {
    add ? (r->*add_it)(&message, field, std::move(value)) : (r->*set_it)(&message, field, std::move(value));
  };
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return put(&Reflection::SetInt32, &Reflection::AddInt32, integer<std::int32_t>(json, path));
    case FieldDescriptor::CPPTYPE_INT64:
      return put(&Reflection::SetInt64, &Reflection::AddInt64, integer<std::int64_t>(json, path));
    case FieldDescriptor::CPPTYPE_UINT32:
      return put(&Reflection::SetUInt32, &Reflection::AddUInt32, integer<std::uint32_t>(json, path));
    case FieldDescriptor::CPPTYPE_UINT64:
      return put(&Reflection::SetUInt64, &Reflection::AddUInt64, integer<std::uint64_t>(json, path));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      if (!json.is_number()) fail(path, "a number", json);
      return put(&Reflection::SetDouble, &Reflection::AddDouble, json.get<double>());
    case FieldDescriptor::CPPTYPE_FLOAT:
      if (!json.is_number()) fail(path, "a number", json);
      return put(&Reflection::SetFloat, &Reflection::AddFloat, json.get<float>());
    case FieldDescriptor::CPPTYPE_BOOL:
      if (!json.is_boolean()) fail(path, "true or false", json);
      return put(&Reflection::SetBool, &Reflection::AddBool, json.get<bool>());
    case FieldDescriptor::CPPTYPE_STRING:
      if (!json.is_string()) fail(path, "a text", json);
      return put(&Reflection::SetString, &Reflection::AddString, json.get<std::string>());
    case FieldDescriptor::CPPTYPE_ENUM: {
      const auto* value = json.is_string() ? field->enum_type()->FindValueByName(json.get<std::string>()) : nullptr;
      if (value == nullptr) fail(path, "a name of " + field->enum_type()->name(), json);
      return put(&Reflection::SetEnum, &Reflection::AddEnum, value);
    }
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return fill(json, add ? *r->AddMessage(&message, field) : *r->MutableMessage(&message, field), path);
  }
}

void set_recipe_value(muster::v1::Value& value, const ordered_json& json, const std::string& path) {
  if (json.is_boolean()) return value.set_flag(json.get<bool>());
  if (json.is_number_float()) return value.set_real(json.get<double>());
  if (json.is_number()) return value.set_whole(integer<std::int64_t>(json, path));
  if (json.is_string()) return value.set_text(json.get<std::string>());
  fail(path, "a text, a number, true or false", json);
}

void fill_recipe(const ordered_json& json, muster::v1::Recipe& recipe, const std::string& path) {
  if (!json.is_object()) fail(path, "an object", json);
  const auto text = [](const ordered_json& word, const std::string& here) {
    if (!word.is_string()) fail(here, "a text", word);
    return word.get<std::string>();
  };
  for (const auto& [table, content] : json.items()) {
    const auto here = path + "." + table;
    if (content.is_null()) continue;
    if (table == "kind") {
      recipe.set_kind(text(content, here));
      continue;
    }
    if (!content.is_object()) fail(here, "an object", content);
    for (const auto& [key, value] : content.items()) {
      const auto name = table + "." + key;
      // Earlier versions wrote "" for a text that was not given.
      if (value.is_null() || value == "") continue;
      if (name == "model.family") {
        recipe.set_family(text(value, here + ".family"));
      } else {
        set_recipe_value((*recipe.mutable_values())[name], value, here + "." + key);
      }
    }
  }
}

void fill_map(const ordered_json& json, Message& message, const FieldDescriptor* field, const std::string& path) {
  if (!json.is_object()) fail(path, "an object", json);
  for (const auto& [key, value] : json.items()) {
    Message* entry = message.GetReflection()->AddMessage(&message, field);
    const auto* type = entry->GetDescriptor();
    entry->GetReflection()->SetString(entry, type->map_key(), key);
    set_value(*entry, type->map_value(), value, path + "." + key, false);
  }
}

void fill(const ordered_json& json, Message& message, const std::string& path) {
  if (auto* recipe = google::protobuf::DynamicCastToGenerated<muster::v1::Recipe>(&message)) {
    return fill_recipe(json, *recipe, path);
  }
  if (!json.is_object()) fail(path.empty() ? "(top)" : path, "an object", json);
  for (const auto& [key, value] : json.items()) {
    const std::string here = path.empty() ? key : path + "." + key;
    const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(key);
    if (field == nullptr) throw std::invalid_argument(here + ": unknown key");
    if (value.is_null()) continue;
    if (field->is_map()) {
      fill_map(value, message, field, here);
    } else if (field->is_repeated()) {
      if (!value.is_array()) fail(here, "an array", value);
      int index = 0;
      for (const auto& element : value) {
        set_value(message, field, element, here + "[" + std::to_string(index++) + "]", true);
      }
    } else {
      set_value(message, field, value, here, false);
    }
  }
}

}  // namespace

ordered_json to_json(const Message& message) {
  if (const auto* recipe = google::protobuf::DynamicCastToGenerated<muster::v1::Recipe>(&message)) {
    return recipe_to_json(*recipe);
  }
  ordered_json out = ordered_json::object();
  const Reflection* r = message.GetReflection();
  const auto* type = message.GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    ordered_json& slot = out[field->name()];
    if (field->is_map()) {
      slot = map_to_json(message, field);
    } else if (field->is_repeated()) {
      slot = ordered_json::array();
      for (int k = 0; k < r->FieldSize(message, field); ++k) slot.push_back(value_to_json(message, field, k));
    } else if (field->has_presence() && !r->HasField(message, field)) {
      slot = nullptr;
    } else {
      slot = value_to_json(message, field, kSingular);
    }
  }
  return out;
}

std::string to_compact_text(const Message& message) {
  constexpr std::size_t kUsual = 4096;
  std::string text;
  text.reserve(kUsual);
  write(message, text);
  text.shrink_to_fit();  // a sweep keeps ten thousand
  return text;
}

void from_json(const ordered_json& json, Message& message) {
  fill(json, message, "");
}

}  // namespace proto
