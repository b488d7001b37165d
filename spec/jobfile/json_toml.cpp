#include "spec/jobfile/json_toml.h"

#include <limits>

#include "spec/jobfile/toml_value.h"

namespace jobfile {
namespace {

using nlohmann::ordered_json;

/// Converts one job. Knows the path of the value that it converts.
class Converter {
 public:
  Converter(const std::string& place, std::vector<Finding>& findings) : place_(place), findings_(findings) {}

  toml::table table(const ordered_json& object, const std::string& path, int depth) {
    toml::table out;
    for (const auto& [key, value] : object.items()) {
      const auto here = path.empty() ? key : path + "." + key;
      put(value, here, depth, [&, &name = key](auto node) { out.insert_or_assign(name, std::move(node)); });
    }
    return out;
  }

 private:
  toml::array array(const ordered_json& list, const std::string& path, int depth) {
    toml::array out;
    std::size_t index = 0;
    for (const auto& value : list) {
      const auto here = path + "[" + std::to_string(index++) + "]";
      if (value.is_null()) {
        refuse(value, here, "want a value; leave it out");
      } else {
        put(value, here, depth, [&](auto node) { out.push_back(std::move(node)); });
      }
    }
    return out;
  }

  template <typename Insert>
  void put(const ordered_json& value, const std::string& path, int depth, const Insert& insert) {
    if (value.is_null()) return;
    if (value.is_string()) return insert(value.get<std::string>());
    if (value.is_boolean()) return insert(value.get<bool>());
    if (value.is_number_float()) return insert(value.get<double>());
    if (value.is_number()) {
      const bool fits = !value.is_number_unsigned() ||
                        value.get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()};
      return fits ? insert(value.get<std::int64_t>())
                  : refuse(value, path, "the number is too large; write a smaller one");
    }
    if (depth == kDeepestJson)
      return refuse(value, path, "tables and arrays stand more than 8 deep in one another; a job file has no such key");
    if (value.is_array()) return insert(array(value, path, depth + 1));
    insert(table(value, path, depth + 1));
  }

  void refuse(const ordered_json& value, const std::string& path, const std::string& said) {
    if (findings_.size() == kMostProblems) return;
    auto finding = finding_of(place_, shown(path) + " \"" + json_shown(value) + "\": ", said);
    finding.key = shown(path);
    finding.value = json_shown(value);
    findings_.push_back(std::move(finding));
  }

  const std::string& place_;
  std::vector<Finding>& findings_;
};

}  // namespace

toml::table table_of(const ordered_json& object, const std::string& place, std::vector<Finding>& findings) {
  return Converter(place, findings).table(object, "", 0);
}

std::optional<std::string> set_text(const ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number()) return value.dump();
  if (!value.is_array()) return std::nullopt;
  std::string all;
  for (const auto& part : value) {
    if (part.is_structured() || part.is_null()) return std::nullopt;
    all += (all.empty() ? "" : ", ") + (part.is_string() ? toml_text(part.get<std::string>()) : *set_text(part));
  }
  return "[" + all + "]";
}

std::string json_shown(const ordered_json& value) {
  constexpr std::size_t kMostShown = 80;
  // A large value is not written out to be cut.
  if (value.is_object() || value.is_array()) return value.is_object() ? "{...}" : "[...]";
  if (value.is_string()) return shown(std::string_view(value.get_ref<const std::string&>()).substr(0, kMostShown));
  return value.dump();
}

}  // namespace jobfile
