#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace google::protobuf {
class Message;
}

namespace proto {

/// A message as JSON for people and dashboards. Names are snake_case, 64-bit integers are numbers, and every plain
/// field is printed. Absent `optional` values and unset messages are null, maps are objects. Bytes are UTF-8 text in
/// which bad bytes are replaced.
nlohmann::ordered_json to_json(const google::protobuf::Message& message);

/// A message as JSON for the store, which from_json() reads: without the fields that have their default, and made
/// without values in between, since a sweep stores ten thousand.
std::string to_compact_text(const google::protobuf::Message& message);

/// Reads a message from JSON, strictly. An unknown key, a wrong type or a number out of range throws
/// std::invalid_argument. The text names the path ("spec.resources.nodes") and what was wanted. null leaves a field at
/// its default.
void from_json(const nlohmann::ordered_json& json, google::protobuf::Message& message);

}  // namespace proto
