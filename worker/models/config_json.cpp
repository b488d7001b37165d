#include "worker/models/config_json.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <variant>

#include "spec/recipes.h"
#include "worker/models/config_members.h"

namespace worker {
namespace {

using fsdp::Json;

std::string leaf_of_row(std::string_view name) {
  return std::string(name.substr(name.find('.') + 1));
}

std::optional<spec::Value> as_value(const spec::Key& key, const Json& json) {
  if (json.is_bool()) return spec::as_kind(key, json.as_bool());
  if (json.is_int()) return spec::as_kind(key, json.as_int());
  if (json.is_number()) return spec::as_kind(key, json.as_double());
  return json.is_string() ? spec::as_kind(key, json.as_string()) : std::nullopt;
}

}  // namespace

bool equal_members(const Json& one, const Json& other) {
  return one.is_number() && other.is_number() ? one.as_double() == other.as_double() : one == other;
}

const Json* given(const Json& object, std::string_view name) {
  const Json* value = object.find(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

const Json* given(const Json& object, std::initializer_list<std::string_view> path) {
  const Json* found = &object;
  for (const auto name : path) found = found == nullptr ? nullptr : given(*found, name);
  return found;
}

void want_member(const Json& config, std::string_view name, const Json& wanted) {
  const Json* found = given(config, name);
  if (found == nullptr || equal_members(*found, wanted)) return;
  throw std::invalid_argument(std::string(kModelConfigFile) + " has " + std::string(name) + " = " + found->dump() +
                              ", and this model has " + wanted.dump() + " only; choose another model");
}

const Json* given_object(const Json& config, std::string_view name) {
  const Json* object = given(config, name);
  if (object == nullptr || object->is_object()) return object;
  throw std::invalid_argument(std::string(kModelConfigFile) + "'s " + std::string(name) + " = " + object->dump() +
                              ": want an object");
}

void want_known_members(const Json& object, const std::string& where, std::span<const std::string_view> known) {
  for (const auto& [member, value] : object.as_object()) {
    if (value.is_null() || std::ranges::find(known, member) != known.end()) continue;
    throw std::invalid_argument(where + " has " + member + " = " + shown_value(value) +
                                ", and this program does not know whether that changes what the model computes; remove "
                                "the member if it changes nothing, or choose another model");
  }
}

void want_family(const Json& config, std::string_view model_type, std::span<const std::string_view> architectures) {
  if (!config.is_object())
    throw std::invalid_argument(std::string(kModelConfigFile) +
                                " holds no JSON object; give a config.json of "
                                "transformers");
  want_member(config, "model_type", model_type);
  const Json* names = given(config, "architectures");
  if (names == nullptr || !names->is_array() || names->size() == 0) return;
  const Json& first = names->as_array().front();
  std::string list;
  for (const auto name : architectures) {
    if (first == Json(name)) return;
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  throw std::invalid_argument(std::string(kModelConfigFile) + " is of the architecture " + first.dump() +
                              "; want one of: " + list);
}

spec::Value value_of_member(const spec::Key& key, const Json& json, std::string_view where) {
  const auto value = as_value(key, json);
  if (value && spec::allowed(key, *value)) return *value;
  throw std::invalid_argument(std::string(where) + " = " + json.dump() + ": want " + spec::wanted(key));
}

void set_row(spec::Values& values, const spec::Table& table, std::string_view row, const Json& json,
             std::string_view where) {
  const spec::Table* tables = &table;
  values.set(row, value_of_member(*spec::find_key({&tables, 1}, row), json, where));
}

spec::Values values_of_config(const spec::Table& table, const Json& config) {
  spec::Values values;
  for (const auto& key : table.keys) {
    const std::string leaf = leaf_of_row(key.name);
    const Json* member = key.kind == spec::Kind::kPath ? nullptr : given(config, leaf);
    if (member == nullptr) continue;
    values.set(key.name, value_of_member(key, *member, std::string(kModelConfigFile) + "'s " + leaf));
  }
  return values;
}

void set_absent(spec::Values& values, std::string_view name, spec::Value value) {
  if (!values.has(name)) values.set(name, std::move(value));
}

void set_absent(spec::Values& values, std::initializer_list<std::pair<std::string_view, spec::Value>> usual) {
  for (const auto& [name, value] : usual) set_absent(values, name, value);
}

void write_member(Json& config, std::string_view name, const spec::Value& value) {
  const Json wanted = std::visit([](const auto& plain) { return Json(plain); }, value);
  const Json* found = config.find(name);
  if (found == nullptr || !equal_members(*found, wanted)) config[name] = wanted;
}

void write_members(Json& config, const spec::Values& values, const spec::Table& family,
                   std::initializer_list<std::string_view> but_for) {
  for (const auto& row : family.keys) {
    if (row.name == spec::kPretrained || std::ranges::find(but_for, row.name) != but_for.end()) continue;
    if (const auto* value = values.find(row.name)) write_member(config, leaf_of_row(row.name), *value);
  }
}

void write_absent_ids(Json& config, std::initializer_list<const char*> tokens) {
  for (const char* token : tokens) {
    if (!config.contains(token)) config[token] = nullptr;
  }
}

void write_whole(Json& config, std::string_view name, double value) {
  const auto whole = static_cast<std::int64_t>(value);
  if (static_cast<double>(whole) == value) config[name] = whole;
}

void write_dtype(Json& config, at::ScalarType dtype) {
  const char* name = dtype == at::kBFloat16 ? "bfloat16" : dtype == at::kHalf ? "float16" : "float32";
  const bool has_both = config.contains("dtype") && config.contains("torch_dtype");
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = name;
  if (has_both) config["torch_dtype"] = name;
}

}  // namespace worker
