#include "worker/train/settings.h"

#include <string_view>

#include "spec/recipes.h"

namespace worker {
namespace {

constexpr std::string_view kBatchSize = "train.batch_size", kMember = "settings";

std::vector<const spec::Table*> tables_of(const RunConfig& config) {
  auto tables = spec::tables_of(config.recipe, config.family);
  tables.push_back(&spec::checkpoints());
  return tables;
}

const fsdp::Json* saved_settings(const fsdp::Json& extra) {
  const fsdp::Json* saved = extra.is_object() ? extra.find(kMember) : nullptr;
  return saved != nullptr && saved->is_object() ? saved : nullptr;
}

fsdp::Json settings_json(const RunConfig& config, const BatchSplit& split) {
  const auto tables = tables_of(config);
  fsdp::Json::Object out;
  for (const auto& [name, value] : config.values) {
    if (const auto* key = spec::find_key(tables, name)) out[name] = spec::print(*key, value);
  }
  out[std::string(kBatchSize)] = std::to_string(split.batch_size);
  return out;
}

}  // namespace

void save_settings(const RunConfig& config, const BatchSplit& split, fsdp::Json& extra) {
  extra[kMember] = settings_json(config, split);
}

std::vector<std::string> changed_settings(const RunConfig& config, const BatchSplit& split, const fsdp::Json& extra) {
  std::vector<std::string> out;
  const fsdp::Json* saved = saved_settings(extra);
  if (saved == nullptr) return out;
  const auto tables = tables_of(config);
  const fsdp::Json now = settings_json(config, split);
  for (const auto& [name, value] : now.as_object()) {
    const fsdp::Json* then = saved->find(name);
    if (then != nullptr ? *then == value : spec::find_key(tables, name)->standard == value.as_string()) continue;
    out.push_back(name + " = " + value.as_string() +
                  (then == nullptr ? " (not set until then)" : " (" + then->as_string() + " until then)"));
  }
  for (const auto& [name, then] : saved->as_object()) {
    if (now.find(name) == nullptr) out.push_back(name + " is not set (" + then.as_string() + " until then)");
  }
  return out;
}

std::string changes_text(const RunConfig& config, const BatchSplit& split, const fsdp::Json& extra) {
  std::string out;
  for (const auto& change : changed_settings(config, split, extra)) out += (out.empty() ? "" : ", ") + change;
  return out;
}

}  // namespace worker
