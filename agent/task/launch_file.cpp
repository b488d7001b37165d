#include "agent/task/launch_file.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace worker::task {
namespace {

constexpr int kFormat = 1;

nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error(path.string() + " cannot be read; is this file system shared with musterd?");
  auto json = nlohmann::json::parse(in, nullptr, false);
  if (!json.is_object()) throw std::runtime_error(path.string() + " is damaged; requeue the job");
  if (json.value("format", 0) != kFormat) {
    throw std::runtime_error(path.string() + " is of another version of muster; use the muster-task of that musterd");
  }
  return json;
}

}  // namespace

LaunchFile read_launch_file(const std::filesystem::path& attempt_folder) {
  const auto path = attempt_folder / "launch.json";
  const auto json = read_json(path);
  try {
    LaunchFile launch;
    launch.attempt_folder = attempt_folder;
    json.at("argv").get_to(launch.argv);
    json.at("env").get_to(launch.env);
    json.at("working_folder").get_to(launch.working_folder);
    json.at("log_folder").get_to(launch.log_folder);
    json.at("job_name").get_to(launch.job_name);
    // A musterd of before this field raised it where checkpoints go.
    const auto checkpoints = launch.env.find("MUSTER_CHECKPOINT_FOLDER");
    launch.fence_folder = json.value("fence_folder", checkpoints == launch.env.end() ? "" : checkpoints->second);
    json.at("log_link").get_to(launch.log_link);
    json.at("is_command").get_to(launch.is_command);
    json.at("forward_signals").get_to(launch.forward_signals);
    json.at("time_limit_ms").get_to(launch.time_limit_ms);
    json.at("stop_grace_ms").get_to(launch.stop_grace_ms);
    if (launch.argv.empty()) throw std::runtime_error(path.string() + ": argv is empty");
    return launch;
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(path.string() + ": " + error.what());
  }
}

std::filesystem::path attempt_of_set(const std::filesystem::path& set_file, std::size_t index) {
  const auto json = read_json(set_file);
  const auto attempts = json.find("attempts");
  if (attempts == json.end() || !attempts->is_array() || index >= attempts->size() || !(*attempts)[index].is_string()) {
    throw std::runtime_error(set_file.string() + " has no attempt " + std::to_string(index));
  }
  return (*attempts)[index].get<std::string>();
}

}  // namespace worker::task
