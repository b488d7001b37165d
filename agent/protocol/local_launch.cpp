#include "agent/protocol/local_launch.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace agent::protocol {

using nlohmann::json;

std::string to_text(const LocalLaunch& launch) {
  json object = {{"job", launch.job},
                 {"attempt", launch.attempt},
                 {"job_name", launch.job_name},
                 {"program", launch.program},
                 {"argv", launch.argv},
                 {"base_env", launch.base_env},
                 {"env", launch.env},
                 {"working_folder", launch.working_folder},
                 {"log_folder", launch.log_folder},
                 {"ranks", launch.ranks},
                 {"gpus_per_rank", launch.gpus_per_rank},
                 {"master_addr", launch.master_addr},
                 {"master_port", launch.master_port},
                 {"is_command", launch.is_command},
                 {"open_files", launch.open_files},
                 {"report", launch.report},
                 {"own_launcher", launch.own_launcher}};
  if (launch.allowed_devices) object["allowed_devices"] = *launch.allowed_devices;
  try {
    return object.dump(2) + "\n";
  } catch (const json::exception&) {
    throw std::invalid_argument("the job's name, command, env or folders hold bytes that are not UTF-8");
  }
}

LocalLaunch parse_local_launch(std::string_view text) {
  try {
    const auto object = json::parse(text);
    LocalLaunch launch;
    object.at("job").get_to(launch.job);
    object.at("attempt").get_to(launch.attempt);
    object.at("job_name").get_to(launch.job_name);
    object.at("program").get_to(launch.program);
    object.at("argv").get_to(launch.argv);
    launch.base_env = object.value("base_env", launch.base_env);
    object.at("env").get_to(launch.env);
    object.at("working_folder").get_to(launch.working_folder);
    object.at("log_folder").get_to(launch.log_folder);
    object.at("ranks").get_to(launch.ranks);
    object.at("gpus_per_rank").get_to(launch.gpus_per_rank);
    if (object.contains("allowed_devices")) launch.allowed_devices = object["allowed_devices"].get<std::string>();
    object.at("master_addr").get_to(launch.master_addr);
    object.at("master_port").get_to(launch.master_port);
    launch.is_command = object.value("is_command", launch.is_command);
    launch.open_files = object.value("open_files", std::uint64_t{0});
    launch.report = object.value("report", launch.report);
    launch.own_launcher = object.value("own_launcher", false);
    return launch;
  } catch (const json::exception& error) {
    throw std::runtime_error(std::string(kLocalLaunchFile) + " makes no sense: " + error.what());
  }
}

}  // namespace agent::protocol
