#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "muster/v1/job.pb.h"

namespace spec {

/// Of a job, sweep elements included: a file's name with it has room for more.
inline constexpr std::size_t kLongestName = 128;

/// What a key of a job file takes.
enum class Kind {
  kText,       // one line
  kName,       // 1 to kLongestName letters, digits and any of . _ - = , +
  kPath,       // relative ones count from the job file's folder
  kWhole,      // number without a fraction
  kReal,       // number
  kFlag,       // true or false
  kChoice,     // one of a list of words
  kDuration,   // "12h"; milliseconds in the message
  kSize,       // "16MiB"; bytes in the message
  kWords,      // array of texts
  kLines,      // array of texts of one line each
  kVariables,  // table of NAME = text, number, true or false
  kOptions,    // table of option = text, number or true
  kSweep       // table of key = values
};

/// One key of a job file. The table of these, fields(), is the only place that says which keys there are, what they
/// take, which defaults they have and what they mean: the parser, the validation, the defaults and the help read it.
struct Field {
  std::string_view key = {};   // "train.batch_size"; top-level keys have no dot
  std::string_view path = {};  // in JobSpec: "recipe.train.batch_size"; empty: read by the parser alone
  Kind kind = Kind::kText;
  std::string_view standard = {};  // the default, spelt as in a job file without quotes; empty: none, or derived
  std::string_view derived = {};   // how a default that depends on other keys is found (see defaults.cpp); else empty
  double low = 0;                  // allowed range, both ends included; for durations in ms, for sizes in bytes
  double high = 0;
  bool above_low = false;         // `low` itself is not allowed
  std::string_view choices = {};  // of kChoice: "cosine linear constant"
  std::string_view meaning = {};
};

std::span<const Field> fields();
/// nullptr: there is no such key.
const Field* find_field(std::string_view key);
/// Of a recipe: model, data, train and fsdp tables. Such keys and `command` exclude each other.
bool is_recipe_field(const Field& field);

/// Has one value of its own: no array, no table, and a place in JobSpec.
bool is_plain(const Field& field);

/// The value of one plain field. Whole numbers, durations and sizes are integers.
using Value = std::variant<bool, std::int64_t, double, std::string>;

/// Absent: the message does not have it, or has 0 or "" where the field cannot tell.
std::optional<Value> get(const muster::v1::JobSpec& spec, const Field& field);
/// The value must be of the field's kind and within its range.
void set(muster::v1::JobSpec& spec, const Field& field, const Value& value);
/// Adds a text to an array (kWords, kLines).
void add(muster::v1::JobSpec& spec, const Field& field, const std::string& text);
/// The texts of an array (kWords, kLines).
std::vector<std::string> texts_of(const muster::v1::JobSpec& spec, const Field& field);
/// The entries of a table (kVariables, kOptions) by name.
std::map<std::string, std::string> texts_by_name(const muster::v1::JobSpec& spec, const Field& field);
void set_text(muster::v1::JobSpec& spec, const Field& field, const std::string& name, const std::string& text);
/// As if the key had not been given.
void clear(muster::v1::JobSpec& spec, const Field& field);
/// The text of a value as people write it: "12h", "16MiB", "0.0003".
std::string print(const Field& field, const Value& value);
/// Reads what print() writes; nullopt if it is no value of this kind. The range is not looked at.
std::optional<Value> parse(const Field& field, std::string_view text);
/// What the field takes, to follow the word "want": "a whole number from 1 to 4096", "a duration such as 12h".
std::string wanted(const Field& field);
/// False: the value is of the right kind but not one of those wanted.
bool allowed(const Field& field, const Value& value);

}  // namespace spec
