#include "agent/protocol/task_launch.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "agent/protocol/json_file.h"
#include "agent/protocol/task_launch_json.h"
#include "spec/variables.h"

namespace agent::protocol {

nlohmann::ordered_json json_of(const TaskLaunch& launch) {
  nlohmann::ordered_json json = {
      {"format", kFormat},
      {"argv", launch.argv},
      {"env", launch.env},
      {"working_folder", launch.working_folder},
      {"log_folder", launch.log_folder},
      {"job_name", launch.job_name},
      {"fence_folder", launch.fence_folder},
      {"log_link", launch.log_link},
      {"is_command", launch.is_command},
      {"forward_signals", launch.forward_signals},
      {"time_limit_ms", launch.time_limit_ms},
      {"stop_grace_ms", launch.stop_grace_ms},
      {"report", launch.report},
      {"own_launcher", launch.own_launcher},
  };
  if (launch.unprepared) json["unprepared"] = true;
  // As JSON, of which the elements of a sweep share most.
  if (!launch.run_file.empty()) json["run_file"] = nlohmann::ordered_json::parse(launch.run_file);
  if (!launch.cache_folder.empty()) json["cache_folder"] = launch.cache_folder;
  return json;
}

std::string to_text(const TaskLaunch& launch) {
  return json_of(launch).dump(2) + "\n";
}

TaskLaunch read_task_launch(const std::filesystem::path& attempt_folder) {
  auto path = attempt_folder / kTaskLaunchFile;
  const auto former = attempt_folder / kFormerTaskLaunchFile;
  if (std::error_code ignored; !std::filesystem::exists(path, ignored) && std::filesystem::exists(former, ignored)) {
    path = former;
  }
  return launch_of_json(read_json_file(path), path.string());
}

TaskLaunch launch_of_json(const nlohmann::ordered_json& json, const std::string& place) {
  try {
    TaskLaunch launch;
    json.at("argv").get_to(launch.argv);
    json.at("env").get_to(launch.env);
    json.at("working_folder").get_to(launch.working_folder);
    json.at("log_folder").get_to(launch.log_folder);
    json.at("job_name").get_to(launch.job_name);
    // A musterd of before this field raised the fence where checkpoints go.
    const auto checkpoints = launch.env.find(spec::variable::kCheckpointFolder);
    launch.fence_folder = json.value("fence_folder", checkpoints == launch.env.end() ? "" : checkpoints->second);
    json.at("log_link").get_to(launch.log_link);
    json.at("is_command").get_to(launch.is_command);
    json.at("forward_signals").get_to(launch.forward_signals);
    json.at("time_limit_ms").get_to(launch.time_limit_ms);
    json.at("stop_grace_ms").get_to(launch.stop_grace_ms);
    launch.report = json.value("report", launch.report);
    launch.own_launcher = json.value("own_launcher", false);
    launch.unprepared = json.value("unprepared", false);
    if (json.contains("run_file")) launch.run_file = json["run_file"].dump(2) + "\n";
    launch.cache_folder = json.value("cache_folder", "");
    if (launch.argv.empty()) throw std::runtime_error(place + ": argv is empty");
    return launch;
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(place + ": " + error.what());
  }
}

}  // namespace agent::protocol
