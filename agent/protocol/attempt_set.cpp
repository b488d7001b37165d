#include "agent/protocol/attempt_set.h"

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "agent/protocol/json_file.h"
#include "agent/protocol/task_launch_json.h"

namespace agent::protocol {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kAttempts = "attempts";
constexpr const char* kCommon = "common";
constexpr const char* kElements = "elements";
constexpr const char* kWhole = "whole";  // of an element that no patch can say

std::vector<std::string> attempts_in(const Json& json) {
  std::vector<std::string> folders;
  if (!json.is_object() || !json.contains(kAttempts) || !json[kAttempts].is_array()) return folders;
  for (const auto& folder : json[kAttempts]) {
    folders.push_back(folder.is_string() ? folder.get<std::string>() : std::string());
  }
  return folders;
}

/// What merge_patch() makes `to` of `from` with (RFC 7396).
Json patch_between(const Json& from, const Json& to) {
  if (!from.is_object() || !to.is_object()) return to;
  auto patch = Json::object();
  for (const auto& [name, value] : from.items()) {
    if (!to.contains(name)) patch[name] = nullptr;
  }
  for (const auto& [name, value] : to.items()) {
    const auto before = from.find(name);
    if (before == from.end()) {
      patch[name] = value;
    } else if (*before != value) {
      patch[name] = patch_between(*before, value);
    }
  }
  return patch;
}

Json patched(Json from, const Json& patch) {
  from.merge_patch(patch);
  return from;
}

/// Whether both have the same members, in whatever order.
bool is_same(const Json& a, const Json& b) {
  return nlohmann::json(a) == nlohmann::json(b);
}

}  // namespace

std::string to_set_text(const std::vector<std::string>& attempt_folders) {
  return Json{{"format", kFormat}, {kAttempts, attempt_folders}}.dump() + "\n";
}

std::vector<std::string> parse_set(std::string_view text) {
  return attempts_in(Json::parse(text, nullptr, false));
}

std::filesystem::path attempt_of_set(const std::filesystem::path& set_file, std::size_t index) {
  const auto attempts = attempts_in(read_json_file(set_file));
  if (index >= attempts.size() || attempts[index].empty()) {
    throw std::runtime_error(set_file.string() + " has no attempt " + std::to_string(index));
  }
  return attempts[index];
}

std::string to_set_launch_text(const std::vector<TaskLaunch>& launches) {
  auto common = Json::object();
  auto elements = Json::array();
  for (const auto& launch : launches) {
    auto whole = json_of(launch);
    if (elements.empty()) common = whole;
    auto patch = patch_between(common, whole);
    // A patch cannot say null.
    if (!is_same(patched(common, patch), whole)) patch = Json{{kWhole, std::move(whole)}};
    elements.push_back(std::move(patch));
  }
  // One element a line, for people who look for one.
  std::string text = "{\"format\": " + std::to_string(kFormat) + ",\n\"" + kCommon + "\": " + common.dump() + ",\n\"" +
                     kElements + "\": [";
  for (std::size_t i = 0; i < elements.size(); ++i) text += (i == 0 ? "\n" : ",\n") + elements[i].dump();
  return text + "\n]}\n";
}

TaskLaunch launch_of_set(const std::filesystem::path& set_launch_file, std::size_t index) {
  const auto json = read_json_file(set_launch_file);
  const auto place = set_launch_file.string() + ", element " + std::to_string(index);
  const auto elements = json.find(kElements);
  if (elements == json.end() || !elements->is_array() || index >= elements->size()) {
    throw std::runtime_error(place + ": there is no such element; requeue the job");
  }
  const auto& element = (*elements)[index];
  if (element.contains(kWhole)) return launch_of_json(element[kWhole], place);
  return launch_of_json(patched(json.value(kCommon, Json::object()), element), place);
}

std::string to_text(const ElementPlace& place) {
  return Json{{"format", kFormat}, {"set_folder", place.set_folder}, {"index", place.index}}.dump() + "\n";
}

std::optional<ElementPlace> parse_element(std::string_view text) {
  const auto json = Json::parse(text, nullptr, false);
  if (!json.is_object() || json.value("format", Json()) != kFormat) return std::nullopt;
  const auto folder = json.find("set_folder"), index = json.find("index");
  if (folder == json.end() || !folder->is_string() || index == json.end() || !index->is_number_unsigned()) {
    return std::nullopt;
  }
  return ElementPlace{folder->get<std::string>(), index->get<std::uint32_t>()};
}

}  // namespace agent::protocol
