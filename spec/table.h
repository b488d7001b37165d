#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace spec {

/// The most characters of a job's name, including the suffix of a sweep element. A file name made from it still has
/// room for more.
inline constexpr std::size_t kLongestName = 128;

/// The kind of value that a key takes.
enum class Kind {
  kText,       // one line
  kName,       // 1 to kLongestName letters, digits and any of . _ - = , +
  kPath,       // a path; a relative path starts at the job file's folder
  kWhole,      // a number without a fraction
  kReal,       // a number
  kFlag,       // true or false
  kChoice,     // one of a list of words
  kDuration,   // "12h"; milliseconds as a value
  kSize,       // "16MiB"; bytes as a value
  kWords,      // an array of texts
  kLines,      // an array of texts of one line each
  kVariables,  // a table of NAME = text, number, true or false
  kOptions,    // a table of option = text, number or true
  kPatterns,   // a table of NAME = regular expression
  kSweep       // a table of key = values
};

/// The value of one plain key. Whole numbers, durations and sizes are integers.
using Value = std::variant<bool, std::int64_t, double, std::string>;

/// Copies a value into the key's member of an options struct.
using Assign = void (*)(void* options, const Value& value, std::string_view choices);

/// One key of a job file or run file. This row is the key's only declaration. Parser, validation, defaults, help,
/// completion, run file and the worker's reader all read it.
struct Key {
  std::string_view name = {};  // "train.batch_size"; top-level keys have no dot
  Kind kind = Kind::kText;
  std::string_view standard = {};  // the default, spelt as in a job file but without quotes; empty: none, or derived
  std::string_view derived = {};   // describes a default that depends on other keys; otherwise empty
  double low = 0;                  // allowed range, both ends included; durations in ms, sizes in bytes
  double high = 0;
  bool above_low = false;         // `low` itself is not allowed
  std::string_view choices = {};  // the words of kChoice: "cosine linear constant"
  std::string_view unit = {};     // the unit of a number, in the plural: "tokens"; empty: none, or in `meaning`
  std::string_view meaning = {};
  Assign assign = nullptr;  // null: no options struct has the key
  /// The long option of sbatch that the key sets. [slurm] takes the key by this name, too. Empty: none.
  std::string_view sbatch = {};
};

/// True if a key of this kind has a single value: no array and no table.
bool is_plain(Kind kind);

/// The text of a value as people write it: "12h", "16MiB", "0.0003".
std::string print(const Key& key, const Value& value);
/// Reads what print() writes. Returns nullopt if the text is no value of the key's kind. Does not check the range.
std::optional<Value> parse(const Key& key, std::string_view text);
/// The value converted to the type of the key's kind. Returns nullopt if the value has another kind. A whole number
/// converts to a real one.
std::optional<Value> as_kind(const Key& key, const Value& value);
/// The values of the key, phrased to follow the word "want": "a whole number from 1 to 4096", "a duration such as 12h".
std::string wanted(const Key& key);
/// True if a value of the right kind is within the key's range or among its choices.
bool allowed(const Key& key, const Value& value);

/// The position of a word in a list such as "cosine linear constant", from 0; nullopt if the word is not in the list.
std::optional<std::size_t> choice_index(std::string_view choices, std::string_view word);

/// Sets an enum to the member at a word's position in `choices`; an unknown word changes nothing.
template <class Enum>
requires std::is_enum_v<Enum>
void choose(Enum& out, std::string_view choices, std::string_view word) {
  if (const auto index = choice_index(choices, word)) out = static_cast<Enum>(*index);
}
/// The first word of `choices` means that nothing is chosen. The words after it stand in the order of the enum.
template <class Enum>
requires std::is_enum_v<Enum>
void choose(std::optional<Enum>& out, std::string_view choices, std::string_view word) {
  const auto index = choice_index(choices, word);
  if (!index) return;
  out = *index == 0 ? std::nullopt : std::optional(static_cast<Enum>(*index - 1));
}

/// A function for a row's `assign`: copies the value into this member of the options. Of a choice, the member is an
/// enum or an optional enum; see choose(). An optional flag has no value where the key is not set.
template <auto Member>
void into(void* options, const Value& value, std::string_view choices) {
  const auto put = [&]<class Options, class Type>(Type Options::*member) {
    auto& out = static_cast<Options*>(options)->*member;
    if constexpr (requires { choose(out, choices, std::string_view()); }) {
      choose(out, choices, std::get<std::string>(value));
    } else if constexpr (std::is_same_v<Type, std::optional<bool>>) {
      out = std::get<bool>(value);
    } else {
      out = std::get<Type>(value);
    }
  };
  put(Member);
}

// The rows of tables.

/// A key's default: a value as people write it, or derived().
struct Default {
  constexpr Default(const char* value) : standard(value) {}  // NOLINT(google-explicit-constructor): rows say "4"
  constexpr Default(std::string_view value, std::string_view how) : standard(value), derived(how) {}
  std::string_view standard, derived;
};
/// Describes a default that depends on other keys.
constexpr Default derived(std::string_view how) {
  return {"", how};
}

/// The values that a number may have, both ends included, or all above `low`.
struct Range {
  double low = 0, high = 0;
  bool above_low = false;
};
constexpr Range above(double low, double high) {
  return {low, high, true};
}

/// Each makes the row of one key, of the kind that its name says. `assign`: see into(). `unit`: in the plural.
namespace row {

constexpr Key number(Kind kind, std::string_view name, Default value, Range range, std::string_view meaning,
                     Assign assign, std::string_view unit) {
  return {.name = name,
          .kind = kind,
          .standard = value.standard,
          .derived = value.derived,
          .low = range.low,
          .high = range.high,
          .above_low = range.above_low,
          .unit = unit,
          .meaning = meaning,
          .assign = assign};
}
constexpr Key whole(std::string_view name, Default value, Range range, std::string_view meaning, Assign assign,
                    std::string_view unit = {}) {
  return number(Kind::kWhole, name, value, range, meaning, assign, unit);
}
constexpr Key real(std::string_view name, Default value, Range range, std::string_view meaning, Assign assign,
                   std::string_view unit = {}) {
  return number(Kind::kReal, name, value, range, meaning, assign, unit);
}
constexpr Key size(std::string_view name, Default value, Range range, std::string_view meaning, Assign assign) {
  return number(Kind::kSize, name, value, range, meaning, assign, {});
}

constexpr Key words(Kind kind, std::string_view name, Default value, std::string_view choices, std::string_view meaning,
                    Assign assign) {
  return {.name = name,
          .kind = kind,
          .standard = value.standard,
          .derived = value.derived,
          .choices = choices,
          .meaning = meaning,
          .assign = assign};
}
constexpr Key flag(std::string_view name, Default value, std::string_view meaning, Assign assign) {
  return words(Kind::kFlag, name, value, {}, meaning, assign);
}
/// `choices`: the words, with spaces between.
constexpr Key choice(std::string_view name, Default value, std::string_view choices, std::string_view meaning,
                     Assign assign) {
  return words(Kind::kChoice, name, value, choices, meaning, assign);
}
constexpr Key path(std::string_view name, std::string_view meaning, Assign assign) {
  return words(Kind::kPath, name, "", {}, meaning, assign);
}
constexpr Key path(std::string_view name, Default value, std::string_view meaning, Assign assign) {
  return words(Kind::kPath, name, value, {}, meaning, assign);
}
constexpr Key text(std::string_view name, std::string_view meaning, Assign assign) {
  return words(Kind::kText, name, "", {}, meaning, assign);
}
constexpr Key text(std::string_view name, Default value, std::string_view meaning, Assign assign) {
  return words(Kind::kText, name, value, {}, meaning, assign);
}

}  // namespace row

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

/// True if rows of a family are absent because the config.json of model.pretrained gives them. Only the ranks read that
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
