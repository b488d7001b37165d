#include "spec/jobfile/run_file.h"

#include <nlohmann/json.hpp>

#include "proto/json/proto_json.h"
#include "spec/recipes.h"

namespace jobfile {
namespace {

nlohmann::ordered_json without_nulls(const google::protobuf::Message& message) {
  auto json = nlohmann::ordered_json::object();
  json.merge_patch(proto::to_json(message));  // a null of a patch removes a key
  return json;
}

/// True if a training of this kind keeps what it makes of a source.
bool has_cache(const std::string& kind) {
  const auto tables = spec::tables_of(kind, spec::first_family(kind));
  return spec::find_key(tables, "data.cache_folder") != nullptr;
}

}  // namespace

nlohmann::ordered_json run_file(const muster::v1::JobSpec& spec, const std::string& checkpoint_folder,
                                const std::string& cache_folder) {
  const auto recipe = without_nulls(spec.recipe());
  nlohmann::ordered_json out;
  out["format"] = 1;
  out["name"] = spec.name();
  for (const auto& [table, values] : recipe.items()) out[table == "kind" ? "recipe" : table] = values;
  const bool names_cache = out.contains("data") && out["data"].contains("cache_folder");
  if (has_cache(spec.recipe().kind()) && !names_cache) out["data"]["cache_folder"] = cache_folder;
  out["checkpoint"] = without_nulls(spec.checkpoint());
  out["checkpoint"]["folder"] = checkpoint_folder;
  return out;
}

}  // namespace jobfile
