#include "worker/plan/assume.h"

#include <algorithm>
#include <vector>

#include "base/usage_error.h"
#include "spec/recipes.h"
#include "worker/train/start_weights.h"

namespace worker {
namespace {

/// Sizes of tensors follow from these rows, and no two models of a family have them alike.
bool is_size(const spec::Key& key) {
  return key.kind == spec::Kind::kWhole && !key.standard.empty() && !key.name.ends_with("_token_id");
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

PlannedRun assume_config(RunConfig config) {
  const std::string pretrained = config.values.text(spec::kPretrained);
  const auto tables = spec::tables_of(config.recipe, config.family);
  if (pretrained.empty() || tables.empty() || finds_model_config(config)) return {std::move(config), {}};
  const spec::Table& family = *tables.front();
  std::vector<std::string> missing, assumed;
  std::vector<const spec::Key*> absent;
  for (const auto& key : family.keys) {
    if (config.values.has(key.name)) continue;
    if (is_size(key)) missing.emplace_back(key.name);
    if (key.kind != spec::Kind::kPath) absent.push_back(&key);
  }
  const std::string place = "model.pretrained = \"" + pretrained + "\"";
  if (!missing.empty()) {
    throw base::UsageError(
        place +
        ": cannot read config.json there, which would tell the sizes of the model; plan where the folder "
        "is, or write the sizes "
        "into the job file, too: " +
        joined(missing));
  }
  config.values.set(spec::kPretrained, std::string());
  spec::fill_defaults(config.values, tables, /*ranks=*/0);
  for (const auto* key : absent) {
    if (const auto* value = config.values.find(key->name))
      assumed.push_back(std::string(key->name) + " = " + spec::print(*key, *value));
  }
  for (const auto& conflict : spec::conflicts_of(config.values, tables, /*ranks=*/0)) {
    // Other keys were looked at before, or are about the weights.
    if (std::ranges::find(family.keys, conflict.key, &spec::Key::name) == family.keys.end()) continue;
    throw base::UsageError(conflict.key + ": " + conflict.want +
                           (conflict.remedy.empty() ? "" : "; " + conflict.remedy));
  }
  std::string note = place + ": config.json cannot be read here";
  if (!assumed.empty()) note += ", so the plan is of " + joined(assumed);
  return {std::move(config), std::move(note)};
}

}  // namespace worker
