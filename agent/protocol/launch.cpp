#include "agent/protocol/launch.h"

#include <utility>

#include "spec/variables.h"

namespace agent::protocol {
namespace {

/// Calls `visit` with the name and the value of each field that every launch file has.
template <typename Launch, typename Visit>
void each_field(Launch& launch, Visit&& visit) {
  visit("argv", launch.argv);
  visit("env", launch.env);
  visit("working_folder", launch.working_folder);
  visit("log_folder", launch.log_folder);
  visit("job_name", launch.job_name);
  visit("fence_folder", launch.fence_folder);
  visit("log_link", launch.log_link);
  visit("is_command", launch.is_command);
  visit("forward_signals", launch.forward_signals);
  visit("time_limit_ms", launch.time_limit_ms);
  visit("stop_grace_ms", launch.stop_grace_ms);
  visit("report", launch.report);
  visit("own_launcher", launch.own_launcher);
}

template <typename Local, typename Visit>
void each_field_of_local(Local& local, Visit&& visit) {
  visit("program", local.program);
  visit("base_env", local.base_env);
  visit("ranks", local.ranks);
  visit("devices", local.devices);
  visit("master_addr", local.master_addr);
  visit("master_port", local.master_port);
  visit("open_files", local.open_files);
}

auto reader_of(const nlohmann::ordered_json& json) {
  return [&json](const char* name, auto& value) { json.at(name).get_to(value); };
}

}  // namespace

nlohmann::ordered_json json_of(const Launch& launch) {
  nlohmann::ordered_json json = {{"format", kFormat}};
  each_field(launch, [&](const char* name, const auto& value) { json[name] = value; });
  if (launch.unprepared) json["unprepared"] = true;
  // The run file goes in as JSON, of which the elements of a sweep share most.
  if (!launch.run_file.empty()) json["run_file"] = nlohmann::ordered_json::parse(launch.run_file);
  if (!launch.cache_folder.empty()) json["cache_folder"] = launch.cache_folder;
  if (launch.batch) {
    json["batch"] = {{"of_node", launch.batch->of_node},
                     {"cpus_of_task", launch.batch->cpus_of_task},
                     {"partition", launch.batch->partition}};
  }
  if (!launch.local) return json;
  auto& local = json["local"];
  each_field_of_local(*launch.local, [&](const char* name, const auto& value) { local[name] = value; });
  if (launch.local->allowed_devices) local["allowed_devices"] = *launch.local->allowed_devices;
  return json;
}

std::string to_text(const Launch& launch) {
  try {
    return json_of(launch).dump(2) + "\n";
  } catch (const nlohmann::json::exception&) {
    throw std::invalid_argument("the job's name, command, env or folders hold bytes that are not UTF-8");
  }
}

Launch parse_launch(std::string_view text, const std::string& place) {
  const auto json = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!json.is_object()) throw std::runtime_error(place + " is damaged");
  return launch_of_json(json, place);
}

std::string attempt_mark_in(std::string_view text) {
  const auto json = nlohmann::ordered_json::parse(text, nullptr, false);
  const auto mark = nlohmann::ordered_json::json_pointer("/env/" + std::string(spec::variable::kAttemptFolder));
  return json.contains(mark) && json[mark].is_string() ? json[mark].get<std::string>() : std::string();
}

Launch read_launch(const std::filesystem::path& attempt_folder) {
  const auto path = attempt_folder / kLaunchFile;
  return launch_of_json(read_json_file(path), path.string());
}

Launch launch_of_json(const nlohmann::ordered_json& json, const std::string& place) {
  try {
    Launch launch;
    each_field(launch, reader_of(json));
    launch.unprepared = json.value("unprepared", false);
    if (json.contains("run_file")) launch.run_file = json["run_file"].dump(2) + "\n";
    launch.cache_folder = json.value("cache_folder", "");
    if (json.contains("batch")) {
      const auto& batch = json["batch"];
      launch.batch = BatchTasks{batch.at("of_node").get<std::uint32_t>(), batch.at("cpus_of_task").get<std::uint32_t>(),
                                batch.at("partition").get<std::string>()};
    }
    if (json.contains("local")) {
      launch.local.emplace();
      each_field_of_local(*launch.local, reader_of(json["local"]));
      if (json["local"].contains("allowed_devices")) {
        launch.local->allowed_devices = json["local"]["allowed_devices"].get<std::string>();
      }
    }
    if (launch.argv.empty()) throw std::runtime_error(place + ": argv is empty");
    return launch;
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(place + ": " + error.what());
  }
}

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

/// Returns the patch with which merge_patch() makes `to` of `from` (RFC 7396).
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

/// True if both have the same members, in whatever order.
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

std::string to_set_launch_text(const std::vector<Launch>& launches) {
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

Launch launch_of_set(const std::filesystem::path& set_launch_file, std::size_t index) {
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
