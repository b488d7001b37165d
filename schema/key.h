#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace schema {

/// Most characters of a job's name. Sweep elements are included: a file's name with it has room for more.
inline constexpr std::size_t kLongestName = 128;

/// What a key takes.
enum class Kind {
  kText,       // one line
  kName,       // 1 to kLongestName letters, digits and any of . _ - = , +
  kPath,       // a path; relative ones count from the job file's folder
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
  kSweep       // a table of key = values
};

/// The value of one plain key. Whole numbers, durations and sizes are integers.
using Value = std::variant<bool, std::int64_t, double, std::string>;

/// Copies a value into the member of an options struct that a key stands for.
using Assign = void (*)(void* options, const Value& value, std::string_view choices);

/// One key of a job file or run file. Parser, validation, defaults, help, completion, run file and the worker's reader
/// all read this row; a key is declared nowhere else.
struct Key {
  std::string_view name = {};  // "train.batch_size"; top-level keys have no dot
  Kind kind = Kind::kText;
  std::string_view standard = {};  // the default, spelt as in a job file without quotes; empty: none, or derived
  std::string_view derived = {};   // how a default that depends on other keys is found, in words; else empty
  double low = 0;                  // allowed range, both ends included; durations in ms, sizes in bytes
  double high = 0;
  bool above_low = false;         // `low` itself is not allowed
  std::string_view choices = {};  // of kChoice: "cosine linear constant"
  std::string_view unit = {};     // of a number, in the plural: "tokens"; empty: none, or `meaning` tells
  std::string_view meaning = {};
  Assign assign = nullptr;  // null: no options struct has it
};

/// Has one value of its own: no array and no table.
bool is_plain(Kind kind);

/// The text of a value as people write it: "12h", "16MiB", "0.0003".
std::string print(const Key& key, const Value& value);
/// Reads what print() writes; nullopt if it is no value of this kind. The range is not looked at.
std::optional<Value> parse(const Key& key, std::string_view text);
/// The value in the type that the key's kind has; nullopt if it is of another kind. A whole number is a real one, too.
std::optional<Value> as_kind(const Key& key, const Value& value);
/// What the key takes, to follow the word "want": "a whole number from 1 to 4096", "a duration such as 12h".
std::string wanted(const Key& key);
/// False: the value is of the right kind but not one of those wanted.
bool allowed(const Key& key, const Value& value);

/// Position of a word in "cosine linear constant", from 0; nullopt: it is none of them.
std::optional<std::size_t> choice_index(std::string_view choices, std::string_view word);

/// For a row's `assign`: the value goes into this member of the options. The words of a choice go into an enum in the
/// order of `choices`; a word that is none of them changes nothing.
template <auto Member>
void into(void* options, const Value& value, std::string_view choices) {
  const auto put = [&]<class Options, class Type>(Type Options::*member) {
    auto& out = static_cast<Options*>(options)->*member;
    if constexpr (std::is_enum_v<Type>) {
      if (const auto index = choice_index(choices, std::get<std::string>(value))) out = static_cast<Type>(*index);
    } else {
      out = std::get<Type>(value);
    }
  };
  put(Member);
}

}  // namespace schema
