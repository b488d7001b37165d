#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>

namespace cli {

/// A message as --json prints it: "api_version" and then its fields. A time that is not known yet is null.
nlohmann::ordered_json json_of(const google::protobuf::Message& message);
nlohmann::ordered_json with_version(const nlohmann::ordered_json& object);

/// Prints rows on stdout as they come. Without `follow` they form one array, which may be `[]`. With it, each row is a
/// line.
class JsonRows {
 public:
  explicit JsonRows(bool lines) : lines_(lines) {}
  void add(const nlohmann::ordered_json& row);
  /// Call it once, after the last row.
  void end();

 private:
  bool lines_;
  bool any_ = false;
};

/// Prints one document on stdout, indented.
void print_json(const nlohmann::ordered_json& document);

}  // namespace cli
