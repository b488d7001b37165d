#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace test {

/// Where a value does not fit its schema: "jobs[0].id: want integer, got null"; empty: it fits. Knows what
/// docs/openapi.json uses of JSON Schema, and is stricter: a value has no member but those that its schema names.
inline std::string misfit(const nlohmann::ordered_json& document, const nlohmann::ordered_json& schema,
                          const nlohmann::ordered_json& value, const std::string& path = "") {
  if (const auto ref = schema.find("$ref"); ref != schema.end()) {
    const nlohmann::ordered_json::json_pointer target(ref->get<std::string>().substr(1));
    return document.contains(target) ? misfit(document, document.at(target), value, path)
                                     : path + ": there is no " + target.to_string();
  }
  if (const auto choices = schema.find("oneOf"); choices != schema.end()) {
    std::string all;
    for (const auto& choice : *choices) {
      const auto problem = misfit(document, choice, value, path);
      if (problem.empty()) return {};
      all += " [" + problem + "]";
    }
    return path + ": none of" + all;
  }
  const auto is = [&](const std::string& type) {
    return type == "null"      ? value.is_null()
           : type == "object"  ? value.is_object()
           : type == "array"   ? value.is_array()
           : type == "string"  ? value.is_string()
           : type == "boolean" ? value.is_boolean()
           : type == "integer" ? value.is_number_integer()
                               : type == "number" && value.is_number();
  };
  const auto& types = schema.at("type");
  bool fits = types.is_string() && is(types.get<std::string>());
  if (types.is_array()) {
    for (const auto& type : types) fits |= is(type.get<std::string>());
  }
  if (!fits) return path + ": want " + types.dump() + ", got " + value.dump().substr(0, 80);
  if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      const auto problem = misfit(document, schema.at("items"), value[i], path + "[" + std::to_string(i) + "]");
      if (!problem.empty()) return problem;
    }
  }
  if (!value.is_object()) return {};
  for (const auto& name : schema.value("required", nlohmann::ordered_json::array())) {
    if (!value.contains(name.get<std::string>())) return path + "." + name.get<std::string>() + " is missing";
  }
  const auto properties = schema.value("properties", nlohmann::ordered_json::object());
  const auto more = schema.value("additionalProperties", nlohmann::ordered_json(!schema.contains("properties")));
  for (const auto& [name, member] : value.items()) {
    const auto here = path + "." + name;
    if (properties.contains(name)) {
      if (const auto problem = misfit(document, properties[name], member, here); !problem.empty()) return problem;
    } else if (more.is_object()) {
      if (const auto problem = misfit(document, more, member, here); !problem.empty()) return problem;
    } else if (!more.get<bool>()) {
      return here + " is not in the file";
    }
  }
  return {};
}

}  // namespace test
