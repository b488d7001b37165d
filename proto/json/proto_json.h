#pragma once

#include <nlohmann/json.hpp>

namespace google::protobuf {
class Message;
}

namespace proto {

/// A message as people and dashboards read it: snake_case names, 64-bit integers as numbers, every plain field printed
/// (absent `optional` values and unset messages as null), maps as objects, bytes as UTF-8 text with bad bytes replaced.
nlohmann::ordered_json to_json(const google::protobuf::Message& message);

/// The reverse, strict: an unknown key, a wrong type or a number out of range throws std::invalid_argument whose text
/// names the path ("spec.resources.nodes") and what was wanted. null leaves a field at its default.
void from_json(const nlohmann::ordered_json& json, google::protobuf::Message& message);

}  // namespace proto
