#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schema/series.h"
#include "schema/table.h"

namespace schema {

/// What can be trained: the model families it takes, the tables of its other keys in the order of a job file, and the
/// series that it reports.
struct Recipe {
  std::string_view kind;  // "causal_lm"
  std::vector<const Table*> families;
  std::vector<const Table*> parts;
  std::vector<Series> series;
};

/// All of them. Names of kinds and families in key rows ("train.recipe", "model.family") come from here.
std::span<const Recipe> recipes();

/// The tables that a training of this kind and family reads. Empty: there is no such kind, or it has no such family.
std::vector<const Table*> tables_of(std::string_view kind, std::string_view family);

/// The series that this kind of recipe reports. Empty: there is no such kind.
std::span<const Series> series_of(std::string_view kind);

/// Every table of every recipe, each once, in the order of a job file.
std::vector<const Table*> recipe_tables();

/// "train.recipe" and "model.family".
const Key& recipe_key();
const Key& family_key();

/// The key of this name among these tables; null: there is none.
const Key* find_key(std::span<const Table* const> tables, std::string_view name);

/// Which values of a training do not fit one another, or have no key in its tables.
std::vector<Conflict> conflicts_of(const Values& values, std::span<const Table* const> tables, std::uint64_t ranks);

/// Adds a table to every recipe while it lives. For tests of what a row does; not thread-safe.
class ScratchTable {
 public:
  explicit ScratchTable(const Table& table);
  ~ScratchTable();
  ScratchTable(const ScratchTable&) = delete;
  ScratchTable& operator=(const ScratchTable&) = delete;
};
/// Grows with each change of recipes().
std::uint64_t recipes_version();

}  // namespace schema
