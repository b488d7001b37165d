#include "spec/recipes.h"

#include <algorithm>
#include <mutex>
#include <set>

#include "base/words.h"
#include "spec/tables/bert_keys.h"
#include "spec/tables/checkpoint_keys.h"
#include "spec/tables/dino_keys.h"
#include "spec/tables/dinov2_keys.h"
#include "spec/tables/gpt_neox_keys.h"
#include "spec/tables/llama_keys.h"
#include "spec/tables/optimizer_keys.h"
#include "spec/tables/sharding_keys.h"
#include "spec/tables/shared_rules.h"
#include "spec/tables/t5_keys.h"
#include "spec/tables/text_data_keys.h"
#include "spec/tables/text_recipe_keys.h"
#include "spec/tables/training_keys.h"

namespace spec {
namespace {

/// The series that every recipe reports, because the training loop measures them.
std::vector<Series> loop_series() {
  return {{.name = "loss", .unit = "nats", .better = Better::kLower, .over_ranks = OverRanks::kRank0},
          {.name = "tokens_per_s", .unit = "tokens/s", .better = Better::kHigher, .over_ranks = OverRanks::kRank0},
          {.name = "samples_per_s", .unit = "samples/s", .better = Better::kHigher, .over_ranks = OverRanks::kRank0},
          {.name = "learning_rate", .over_ranks = OverRanks::kRank0},
          {.name = "grad_norm", .over_ranks = OverRanks::kRank0},
          {.name = "loss_scale", .over_ranks = OverRanks::kRank0},
          {.name = "skipped_steps", .unit = "steps", .better = Better::kLower, .over_ranks = OverRanks::kRank0},
          {.name = "gpu_memory_peak", .unit = "bytes", .better = Better::kLower, .over_ranks = OverRanks::kMax},
          {.name = "gpu_memory_reserved", .unit = "bytes", .better = Better::kLower, .over_ranks = OverRanks::kMax},
          {.name = "wait_ms", .unit = "ms", .better = Better::kLower, .over_ranks = OverRanks::kMean},
          {.name = "data_wait_ms", .unit = "ms", .better = Better::kLower, .over_ranks = OverRanks::kMean},
          {.name = "gathered_bytes", .unit = "bytes", .over_ranks = OverRanks::kRank0},
          {.name = "scattered_bytes", .unit = "bytes", .over_ranks = OverRanks::kRank0},
          {.name = "tensor_peak_bytes", .unit = "bytes", .better = Better::kLower, .over_ranks = OverRanks::kMax}};
}

Series better_higher(std::string name) {
  return {.name = std::move(name), .better = Better::kHigher, .over_ranks = OverRanks::kRank0};
}

Series better_lower(std::string name) {
  return {.name = std::move(name), .unit = "nats", .better = Better::kLower, .over_ranks = OverRanks::kRank0};
}

/// The series of the loop, and the recipe's own.
std::vector<Series> with(const std::vector<Series>& own) {
  std::vector<Series> all = loop_series();
  all.insert(all.end(), own.begin(), own.end());
  return all;
}

std::vector<Recipe> all_recipes() {
  return {{.kind = "causal_lm",
           .families = {&llama(), &gpt_neox()},
           .parts = {&text_data(), &prepared_data(), &causal(), &lora(), &training(), &optimizer(), &exports(),
                     &sharding()},
           .series = with_held_out_loss(
               {{.name = "validation/perplexity", .better = Better::kLower, .over_ranks = OverRanks::kRank0},
                better_higher("validation/legal_moves")})},
          {.kind = "seq2seq",
           .families = {&t5()},
           .parts = {&sequence(), &prepared_data(), &seq2seq(), &training(), &optimizer(), &exports(), &sharding()},
           .series = with_held_out_loss({better_higher("validation/rouge1"), better_higher("validation/rouge2"),
                                         better_higher("validation/rougeL"), better_higher("validation/rougeLsum")})},
          {.kind = "classify",
           .families = {&bert()},
           .parts = {&sequence(), &prepared_data(), &classify(), &training(), &optimizer(), &exports(), &sharding()},
           .series = with_held_out_loss({better_higher("validation/accuracy"), better_higher("validation/macro_f1")})},
          {.kind = "masked_lm",
           .families = {&bert()},
           .parts = {&sequence(), &prepared_data(), &masked_lm(), &training(), &optimizer(), &exports(), &sharding()},
           .series = with_held_out_loss({better_higher("validation/accuracy")})},
          {.kind = "dino",
           .families = {&dinov2()},
           .parts = {&prepared_data(), &dino(), &training(), &optimizer(), &exports(), &sharding()},
           .series = with({better_lower("dino_loss"), better_lower("ibot_loss"), better_lower("koleo_loss"),
                           better_higher("validation/knn_accuracy"), better_higher("validation/pixel_knn_accuracy")})}};
}

void add_word(std::string& words, std::string_view word) {
  if (!choice_index(words, word)) base::append(words, word, " ");
}

/// A text that lives as long as the program.
std::string_view kept(std::string text) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> texts;
  std::lock_guard lock(mutex);
  return *texts.insert(std::move(text)).first;
}

/// A row of the same name in another table, of a family or of a recipe: takes what either takes.
void merge(Key& into, const Key& other) {
  into.low = std::min(into.low, other.low);
  into.high = std::max(into.high, other.high);
  into.above_low = into.above_low && other.above_low;
  if (into.choices != other.choices) {
    std::string words(into.choices);
    for (const auto& word : base::split(other.choices, ' ')) add_word(words, word);
    into.choices = kept(words);
  }
  if (into.standard == other.standard && into.derived == other.derived) return;
  into.standard = {};
  into.derived = into.name.starts_with("model.") ? "by model.family" : "by train.recipe";
}

void add_table(std::vector<const Table*>& tables, const Table* table) {
  if (std::ranges::find(tables, table) == tables.end()) tables.push_back(table);
}

/// The recipes, and the rows that name them.
struct Registry {
  std::vector<Recipe> recipes = all_recipes();
  std::vector<const Table*> tables;  // of all recipes
  Key recipe{.name = "train.recipe", .kind = Kind::kChoice, .standard = "causal_lm", .meaning = "What is trained."};
  Key family{
      .name = "model.family", .kind = Kind::kChoice, .derived = "the first of the recipe", .meaning = "Architecture."};
  std::uint64_t version = 0;

  Registry() { changed(); }
  void changed() {
    std::string kinds, families;
    tables.clear();
    for (const auto& one : recipes) {
      add_word(kinds, one.kind);
      for (const auto* model : one.families) {
        add_word(families, model->name);
        add_table(tables, model);
      }
    }
    for (const auto& one : recipes) {
      for (const auto* part : one.parts) add_table(tables, part);
    }
    recipe.choices = kept(std::move(kinds));
    family.choices = kept(std::move(families));
    ++version;
  }
};

Registry& registry() {
  static Registry all;
  return all;
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
  return registry().tables;
}

std::vector<Key> recipe_keys() {
  std::vector<Key> keys;
  for (const auto* table : recipe_tables()) {
    for (const auto& key : table->keys) {
      const auto found = std::ranges::find(keys, key.name, &Key::name);
      if (found == keys.end()) {
        keys.push_back(key);
      } else {
        merge(*found, key);
      }
    }
  }
  return keys;
}

std::string_view first_family(std::string_view kind) {
  for (const auto& recipe : recipes()) {
    if (recipe.kind == kind && !recipe.families.empty()) return recipe.families.front()->name;
  }
  return {};
}

const Key& recipe_key() {
  return registry().recipe;
}

const Key& family_key() {
  return registry().family;
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
      add_conflict(conflicts, name, "this recipe and model family have no such key", "remove it");
    }
  }
  for (const auto* table : tables) {
    if (table->check != nullptr && !awaits_config(*table, values)) table->check(values, ranks, conflicts);
  }
  return conflicts;
}

std::vector<Series> with_held_out_loss(const std::vector<Series>& own) {
  std::vector<Series> all = with(own);
  all.insert(all.begin() + 1, better_lower(std::string(kHeldOutLoss)));
  return all;
}

ScratchRecipes::ScratchRecipes(const std::function<void(std::vector<Recipe>& recipes)>& change)
    : before_(registry().recipes) {
  change(registry().recipes);
  registry().changed();
}

ScratchRecipes::~ScratchRecipes() {
  registry().recipes = before_;
  registry().changed();
}

}  // namespace spec
