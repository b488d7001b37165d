#include "cli/json_view.h"

#include <iostream>

#include "json/proto_json.h"

namespace cli {
namespace {

using Json = nlohmann::ordered_json;
constexpr auto kReplace = Json::error_handler_t::replace;

/// Replaces empty times by null. Does not enter `spec` and `settings`, which hold names that users choose.
void empty_times_to_null(Json& json) {
  for (auto& [key, value] : json.items()) {
    if (value.is_string() && value.get_ref<const std::string&>().empty() &&
        (key == "at" || key.ends_with("_at") || key.ends_with("_until") || key == "expected_start")) {
      value = nullptr;
    } else if (value.is_structured() && key != "spec" && key != "settings") {
      empty_times_to_null(value);
    }
  }
}

/// Replaces the steps of a command that has not reported by null: it is not known whether it saved.
void unknown_steps_to_null(Json& job) {
  const auto step = job.find("step"), saved = job.find("last_checkpoint_step");
  if (step == job.end() || saved == job.end()) return;
  if (step->is_null() && *saved == 0) *saved = nullptr;
}

}  // namespace

Json with_version(const Json& object) {
  Json out{{"api_version", "v1"}};
  for (const auto& [key, value] : object.items()) out[key] = value;
  return out;
}

Json json_of(const google::protobuf::Message& message) {
  auto json = proto::to_json(message);
  empty_times_to_null(json);
  unknown_steps_to_null(json);
  return with_version(json);
}

void print_json(const Json& document) {
  std::cout << document.dump(2, ' ', false, kReplace) << "\n";
}

std::string csv_cell(const Json& value) {
  if (!value.is_string()) {
    const auto text = value.dump();
    return text == "null" ? "" : text;
  }
  const auto& text = value.get_ref<const std::string&>();
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

void JsonRows::add(const Json& row) {
  if (form_ == Form::kObject) return print_json(row);
  if (form_ == Form::kLines) {
    std::cout << row.dump(-1, ' ', false, kReplace) << std::endl;
  } else {
    std::cout << (any_ ? ",\n  " : "[\n  ") << row.dump(-1, ' ', false, kReplace);
  }
  any_ = true;
}

void JsonRows::end() {
  if (form_ == Form::kArray) std::cout << (any_ ? "\n]" : "[]") << "\n";
}

}  // namespace cli
