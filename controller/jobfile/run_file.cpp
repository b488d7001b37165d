#include "jobfile/run_file.h"

#include <nlohmann/json.hpp>

#include "json/proto_json.h"

namespace jobfile {
namespace {

nlohmann::ordered_json without_nulls(const google::protobuf::Message& message) {
  auto json = nlohmann::ordered_json::object();
  json.merge_patch(proto::to_json(message));  // a null of a patch removes a key
  return json;
}

}  // namespace

nlohmann::ordered_json run_file(const muster::v1::JobSpec& spec, const std::string& checkpoint_folder,
                                const std::string& cache_folder) {
  const auto recipe = without_nulls(spec.recipe());
  nlohmann::ordered_json out;
  out["format"] = 1;
  out["name"] = spec.name();
  for (const auto& [table, values] : recipe.items()) out[table == "kind" ? "recipe" : table] = values;
  if (!out["data"].contains("cache_folder")) out["data"]["cache_folder"] = cache_folder;
  out["checkpoint"] = without_nulls(spec.checkpoint());
  out["checkpoint"]["folder"] = checkpoint_folder;
  return out;
}

}  // namespace jobfile
