#include "jobfile/recipe_values.h"

#include "jobfile/job_keys.h"

namespace jobfile {

std::vector<const schema::Table*> tables_of(const muster::v1::Recipe& recipe) {
  return schema::tables_of(recipe.kind(), recipe.family());
}

schema::Values values_of(const muster::v1::JobSpec& spec, const std::vector<const schema::Table*>& tables) {
  schema::Values values;
  for (const auto* table : tables) {
    for (const auto& key : table->keys) {
      const auto given = get(spec, key);
      if (const auto value = given ? schema::as_kind(key, *given) : std::nullopt) values.set(key.name, *value);
    }
  }
  return values;
}

}  // namespace jobfile
