#include "partitions/policy_json.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "jobfile/partition_keys.h"

namespace partitions {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> texts_of(const Json& value) {
  if (value.is_array()) return value.get<std::vector<std::string>>();
  if (value.is_string()) return {value.get<std::string>()};
  return {value.dump()};
}

}  // namespace

std::string policy_to_json(const PartitionPolicy& policy) {
  Json json = Json::object();
  for (const auto& field : jobfile::partition_keys()) {
    const auto texts = jobfile::texts(policy, field);
    const bool is_literal = field.kind == schema::Kind::kWhole || field.kind == schema::Kind::kFlag;
    if (texts.empty()) continue;
    json[std::string(field.name)] = jobfile::is_list(field) ? Json(texts)
                                    : is_literal            ? Json::parse(texts.front())
                                                            : Json(texts.front());
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

PartitionPolicy policy_from_json(const std::string& name, const std::string& text) {
  PartitionPolicy policy;
  policy.set_name(name);
  try {
    const auto json = Json::parse(text);
    for (const auto& [key, value] : json.items()) {
      const auto* field = jobfile::find_partition_key(key);
      if (field == nullptr) continue;
      if (const auto want = jobfile::put(policy, *field, texts_of(value)); !want.empty()) {
        throw std::runtime_error(key + ": want " + want);
      }
    }
  } catch (const std::exception& error) {
    throw std::runtime_error("the stored policy of partition \"" + name + "\" cannot be read: " + error.what());
  }
  return policy;
}

}  // namespace partitions
