#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spec/key.h"

namespace spec {

/// Values by key name. Each value has its key's kind.
class Values {
 public:
  const Value* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }
  void set(std::string_view name, Value value) { values_.insert_or_assign(std::string(name), std::move(value)); }

  /// The value, or 0, false or "" if there is none.
  std::int64_t whole(std::string_view name) const { return get<std::int64_t>(name); }
  double real(std::string_view name) const { return get<double>(name); }
  bool flag(std::string_view name) const { return get<bool>(name); }
  std::string text(std::string_view name) const { return get<std::string>(name); }

  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

 private:
  template <class Type>
  Type get(std::string_view name) const {
    const auto* value = find(name);
    return value == nullptr ? Type() : std::get<Type>(*value);
  }
  std::map<std::string, Value, std::less<>> values_;
};

/// A contradiction between values. Printed as: `key "value": want; remedy`.
struct Conflict {
  std::string key;
  std::string want;                  // "want a multiple of 16 (8 a micro-batch x 2 ranks)"
  std::string remedy;                // "try 16 or 32"; may be empty
  std::vector<std::string> related;  // the other keys in the contradiction
};

/// The keys that one part of a training reads. A part is a model family, a kind of data, an optimizer or a recipe.
struct Table {
  std::string_view name;  // "llama"
  std::span<const Key> keys;
  /// Sets the keys whose defaults depend on others. Runs after the plain defaults of all tables are set. `ranks` is the
  /// world size. May be null.
  void (*derive)(Values& values, std::uint64_t ranks) = nullptr;
  /// Adds the contradictions between values that are each within their range. May be null.
  void (*check)(const Values& values, std::uint64_t ranks, std::vector<Conflict>& conflicts) = nullptr;
};

/// The row that every family of models has, and no other table.
inline constexpr std::string_view kPretrained = "model.pretrained";

/// The meaning of that row.
inline constexpr std::string_view kPretrainedMeaning =
    "Folder of a Hugging Face model (config.json and safetensors) whose weights training starts from. config.json "
    "gives the other keys of [model]; one that is written must agree with it. Without it the weights are drawn, seeded "
    "by "
    "train.seed.";

/// Whether rows of a family are absent because the config.json of model.pretrained gives them. Only the ranks read that
/// file. Until then such rows have no defaults, and the family's check has nothing to look at.
bool awaits_config(const Table& table, const Values& values);

/// An options struct with the values of a table's rows. Members without a value keep their initial value.
template <class Options>
Options bind(const Table& table, const Values& values) {
  Options options;
  for (const auto& key : table.keys) {
    const auto* value = values.find(key.name);
    if (key.assign != nullptr && value != nullptr) key.assign(&options, *value, key.choices);
  }
  return options;
}

/// Sets the plain defaults of absent keys of all tables, then derives the others. A second call changes nothing. Leaves
/// out the rows of a family that config.json gives.
void fill_defaults(Values& values, std::span<const Table* const> tables, std::uint64_t ranks);

/// A table's options with all values at their defaults, for one rank.
template <class Options>
Options standard(const Table& table) {
  const Table* only = &table;
  Values values;
  fill_defaults(values, {&only, 1}, 1);
  return bind<Options>(table, values);
}

/// "try 16 or 32": the multiples of `unit` around `value`.
std::string multiples_near(std::int64_t value, std::int64_t unit);

}  // namespace spec
