#pragma once

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>

namespace cli {

/// A message as --json prints it: "api_version" first, then its fields; times that are not yet there are null.
nlohmann::ordered_json json_of(const google::protobuf::Message& message);
nlohmann::ordered_json with_version(const nlohmann::ordered_json& object);

/// Rows on stdout as they come: one array, `[]` if none came; or, following, one line each.
class JsonRows {
 public:
  explicit JsonRows(bool lines) : lines_(lines) {}
  void add(const nlohmann::ordered_json& row);
  /// Once, after the last row.
  void end();

 private:
  bool lines_;
  bool any_ = false;
};

/// One document on stdout, for people to read too.
void print_json(const nlohmann::ordered_json& document);

}  // namespace cli
