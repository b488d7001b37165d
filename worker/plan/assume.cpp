#include "plan/assume.h"

#include <algorithm>
#include <vector>

#include "rank/errors.h"
#include "schema/recipes.h"
#include "train/start_weights.h"

namespace worker {
namespace {

/// Sizes of tensors follow from these rows, and no two models of a family have them alike.
bool is_size(const schema::Key& key) {
  return key.kind == schema::Kind::kWhole && !key.standard.empty() && !key.name.ends_with("_token_id");
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

PlannedRun assume_config(RunConfig config) {
  const std::string pretrained = config.values.text(schema::kPretrained);
  const auto tables = schema::tables_of(config.recipe, config.family);
  if (pretrained.empty() || tables.empty() || finds_model_config(config)) return {std::move(config), {}};
  const schema::Table& family = *tables.front();
  std::vector<std::string> missing, assumed;
  std::vector<const schema::Key*> absent;
  for (const auto& key : family.keys) {
    if (config.values.has(key.name)) continue;
    if (is_size(key)) missing.emplace_back(key.name);
    if (key.kind != schema::Kind::kPath) absent.push_back(&key);
  }
  const std::string place = "model.pretrained = \"" + pretrained + "\"";
  if (!missing.empty()) {
    throw UsageError(place +
                     ": cannot read config.json there, which would tell the sizes of the model; plan where the folder "
                     "is, or write the sizes "
                     "into the job file, too: " +
                     joined(missing));
  }
  config.values.set(schema::kPretrained, std::string());
  schema::fill_defaults(config.values, tables, /*ranks=*/0);
  for (const auto* key : absent) {
    if (const auto* value = config.values.find(key->name))
      assumed.push_back(std::string(key->name) + " = " + schema::print(*key, *value));
  }
  for (const auto& conflict : schema::conflicts_of(config.values, tables, /*ranks=*/0)) {
    // Other keys were looked at before, or are about the weights.
    if (std::ranges::find(family.keys, conflict.key, &schema::Key::name) == family.keys.end()) continue;
    throw UsageError(conflict.key + ": " + conflict.want + (conflict.remedy.empty() ? "" : "; " + conflict.remedy));
  }
  std::string note = place + ": config.json cannot be read here";
  if (!assumed.empty()) note += ", so the plan is of " + joined(assumed);
  return {std::move(config), std::move(note)};
}

}  // namespace worker
