#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spec/series.h"
#include "spec/table.h"

namespace spec {

/// A kind of training: its model families, the tables of its other keys in the order of a job file, and the series that
/// it reports.
struct Recipe {
  std::string_view kind;  // "causal_lm"
  std::vector<const Table*> families;
  std::vector<const Table*> parts;
  std::vector<Series> series;
};

/// All recipes. The rows "train.recipe" and "model.family" take their names of kinds and families from here.
std::span<const Recipe> recipes();

/// The tables that a training of this kind and family reads. Empty if the kind does not exist or does not have the
/// family.
std::vector<const Table*> tables_of(std::string_view kind, std::string_view family);

/// The series that this kind of recipe reports. Empty if the kind does not exist.
std::span<const Series> series_of(std::string_view kind);

/// Every table of every recipe, in the order of a job file. Each table appears once.
std::vector<const Table*> recipe_tables();

/// The rows of all recipes, each name once, in the order of a job file. Families name their sizes as config.json does,
/// and recipes may share a name, so several tables may have a row of one name: of the same kind and unit, but perhaps
/// with another default, range or words. The row here then takes what any of them takes; what a training may have is in
/// its own tables.
std::vector<Key> recipe_keys();

/// The family that a training of this kind has if it names none. Empty if the kind does not exist.
std::string_view first_family(std::string_view kind);

/// The rows of "train.recipe" and "model.family".
const Key& recipe_key();
const Key& family_key();

/// The key with this name in these tables; null if there is none.
const Key* find_key(std::span<const Table* const> tables, std::string_view name);

/// Finds the values of a training that contradict each other, and those without a key in its tables.
std::vector<Conflict> conflicts_of(const Values& values, std::span<const Table* const> tables, std::uint64_t ranks);

/// The series of a recipe whose evaluations measure the loss: those that every recipe reports, `validation/loss`, and
/// `own`.
std::vector<Series> with_held_out_loss(const std::vector<Series>& own);

/// Changes the recipes for as long as this object lives. For tests that add a recipe, a family or a row. The last one
/// made is the first one to go. Not thread-safe.
class ScratchRecipes {
 public:
  explicit ScratchRecipes(const std::function<void(std::vector<Recipe>& recipes)>& change);
  ~ScratchRecipes();
  ScratchRecipes(const ScratchRecipes&) = delete;
  ScratchRecipes& operator=(const ScratchRecipes&) = delete;

 private:
  const std::vector<Recipe> before_;
};
/// A number that grows with each change of recipes().
std::uint64_t recipes_version();

}  // namespace spec
