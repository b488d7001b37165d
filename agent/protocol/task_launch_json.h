#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "agent/protocol/task_launch.h"

namespace agent::protocol {

/// A launch file as JSON. Throws nlohmann::json::exception where `run_file` is no JSON.
nlohmann::ordered_json json_of(const TaskLaunch& launch);

/// Throws std::runtime_error that begins with `place` and says what is wrong.
TaskLaunch launch_of_json(const nlohmann::ordered_json& json, const std::string& place);

}  // namespace agent::protocol
