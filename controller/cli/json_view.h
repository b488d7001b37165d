#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>

namespace cli {

/// A message as --json prints it: "api_version" and then its fields. A time that is not known yet is null.
nlohmann::ordered_json json_of(const google::protobuf::Message& message);
nlohmann::ordered_json with_version(const nlohmann::ordered_json& object);

/// Prints one document on stdout, indented.
void print_json(const nlohmann::ordered_json& document);

/// A value as a cell of comma-separated values: a number has the shortest text that gives the same number again. The
/// cell of null, and of a number that is not finite, is empty.
std::string csv_cell(const nlohmann::ordered_json& value);

/// Prints rows on stdout as they come: in one array, which may be `[]`; each in a line; or a lone row as an object.
class JsonRows {
 public:
  enum class Form { kArray, kLines, kObject };
  explicit JsonRows(Form form) : form_(form) {}
  void add(const nlohmann::ordered_json& row);
  /// Call it once, after the last row.
  void end();

 private:
  Form form_;
  bool any_ = false;
};

/// Prints messages on stdout as one array.
template <typename Messages>
void print_json_array(const Messages& messages) {
  JsonRows rows(JsonRows::Form::kArray);
  for (const auto& message : messages) rows.add(json_of(message));
  rows.end();
}

}  // namespace cli
