#include "schema/recipes.h"

#include <algorithm>

#include "schema/tables/exports.h"
#include "schema/tables/llama.h"
#include "schema/tables/optimizer.h"
#include "schema/tables/sharding.h"
#include "schema/tables/text_data.h"
#include "schema/tables/training.h"

namespace schema {
namespace {

/// The series that every recipe reports, because the training loop measures them.
std::vector<Series> loop_series(std::string_view loss_unit) {
  return {{.name = "loss", .unit = std::string(loss_unit), .better = Better::kLower, .over_ranks = OverRanks::kRank0},
          {.name = "validation/loss",
           .unit = std::string(loss_unit),
           .better = Better::kLower,
           .over_ranks = OverRanks::kRank0},
          {.name = "tokens_per_s", .unit = "tokens/s", .better = Better::kHigher, .over_ranks = OverRanks::kRank0},
          {.name = "learning_rate", .over_ranks = OverRanks::kRank0},
          {.name = "grad_norm", .over_ranks = OverRanks::kRank0},
          {.name = "loss_scale", .over_ranks = OverRanks::kRank0},
          {.name = "skipped_steps", .unit = "steps", .better = Better::kLower, .over_ranks = OverRanks::kRank0},
          {.name = "gpu_memory_peak", .unit = "bytes", .better = Better::kLower, .over_ranks = OverRanks::kMax},
          {.name = "gpu_memory_reserved", .unit = "bytes", .better = Better::kLower, .over_ranks = OverRanks::kMax},
          {.name = "wait_ms", .unit = "ms", .better = Better::kLower, .over_ranks = OverRanks::kMean},
          {.name = "gathered_bytes", .unit = "bytes", .over_ranks = OverRanks::kRank0},
          {.name = "scattered_bytes", .unit = "bytes", .over_ranks = OverRanks::kRank0},
          {.name = "tensor_peak_bytes", .unit = "bytes", .better = Better::kLower, .over_ranks = OverRanks::kMax}};
}

struct Registry {
  std::vector<Recipe> recipes{{.kind = "causal_lm",
                               .families = {&llama()},
                               .parts = {&text_data(), &training(), &optimizer(), &exports(), &sharding()},
                               .series = loop_series("nats")}};
  std::uint64_t version = 1;
};

Registry& registry() {
  static Registry all;
  return all;
}

void add_word(std::string& words, std::string_view word) {
  if (!choice_index(words, word)) words += (words.empty() ? "" : " ") + std::string(word);
}

void add_table(std::vector<const Table*>& tables, const Table* table) {
  if (std::ranges::find(tables, table) == tables.end()) tables.push_back(table);
}

}  // namespace

std::span<const Recipe> recipes() {
  return registry().recipes;
}

std::uint64_t recipes_version() {
  return registry().version;
}

std::vector<const Table*> tables_of(std::string_view kind, std::string_view family) {
  for (const auto& recipe : recipes()) {
    if (recipe.kind != kind) continue;
    for (const auto* model : recipe.families) {
      if (model->name != family) continue;
      std::vector<const Table*> tables{model};
      tables.insert(tables.end(), recipe.parts.begin(), recipe.parts.end());
      return tables;
    }
  }
  return {};
}

std::span<const Series> series_of(std::string_view kind) {
  for (const auto& recipe : recipes()) {
    if (recipe.kind == kind) return recipe.series;
  }
  return {};
}

std::vector<const Table*> recipe_tables() {
  std::vector<const Table*> tables;
  for (const auto& recipe : recipes()) {
    for (const auto* model : recipe.families) add_table(tables, model);
  }
  for (const auto& recipe : recipes()) {
    for (const auto* part : recipe.parts) add_table(tables, part);
  }
  return tables;
}

const Key& recipe_key() {
  static const std::string kinds = [] {
    std::string words;
    for (const auto& recipe : recipes()) add_word(words, recipe.kind);
    return words;
  }();
  static const Key key{.name = "train.recipe",
                       .kind = Kind::kChoice,
                       .standard = "causal_lm",
                       .choices = kinds,
                       .meaning = "What is trained."};
  return key;
}

const Key& family_key() {
  static const std::string families = [] {
    std::string words;
    for (const auto& recipe : recipes()) {
      for (const auto* model : recipe.families) add_word(words, model->name);
    }
    return words;
  }();
  static const Key key{.name = "model.family",
                       .kind = Kind::kChoice,
                       .standard = "llama",
                       .choices = families,
                       .meaning = "Architecture."};
  return key;
}

const Key* find_key(std::span<const Table* const> tables, std::string_view name) {
  for (const auto* table : tables) {
    const auto found = std::ranges::find(table->keys, name, &Key::name);
    if (found != table->keys.end()) return &*found;
  }
  return nullptr;
}

std::vector<Conflict> conflicts_of(const Values& values, std::span<const Table* const> tables, std::uint64_t ranks) {
  std::vector<Conflict> conflicts;
  for (const auto& [name, value] : values) {
    if (find_key(tables, name) == nullptr) {
      conflicts.push_back({name, "this recipe and model family have no such key", "remove it", {}});
    }
  }
  for (const auto* table : tables) {
    if (table->check != nullptr) table->check(values, ranks, conflicts);
  }
  return conflicts;
}

ScratchTable::ScratchTable(const Table& table) {
  for (auto& recipe : registry().recipes) recipe.parts.push_back(&table);
  ++registry().version;
}

ScratchTable::~ScratchTable() {
  for (auto& recipe : registry().recipes) recipe.parts.pop_back();
  ++registry().version;
}

}  // namespace schema
