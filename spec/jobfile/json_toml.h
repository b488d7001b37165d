#pragma once

#include <toml++/toml.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "spec/jobfile/spec.h"

namespace jobfile {

/// Tables and arrays in one another.
inline constexpr int kDeepestJson = 8;

/// The object as a job file's table. A null leaves its key out. What TOML cannot say is a finding at `place`, and is
/// left out too.
toml::table table_of(const nlohmann::ordered_json& object, const std::string& place, std::vector<Finding>& findings);

/// The value in the form of --set: a text as it is, anything else as TOML. nullopt: null, an object or a number that
/// TOML cannot say.
std::optional<std::string> set_text(const nlohmann::ordered_json& value);

/// The value for messages, cut where it is long.
std::string json_shown(const nlohmann::ordered_json& value);

}  // namespace jobfile
