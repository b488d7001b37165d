#include "spec/table.h"

#include <algorithm>
#include <charconv>

#include "base/numbers.h"
#include "base/words.h"

namespace spec {
namespace {

std::string print_real(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

template <class Number>
std::optional<Value> as_value(const std::optional<Number>& number) {
  return number ? std::optional<Value>(*number) : std::nullopt;
}

std::string quoted_choices(std::string_view choices) {
  if (choices.empty()) return {};
  const auto text = "\"" + base::joined(base::split(choices, ' '), "\", \"") + "\"";
  return text.find(',') == std::string::npos ? text : "one of " + text;
}

std::string range(const Key& key, const std::string& low, const std::string& high) {
  return (key.above_low ? " above " : " from ") + low + (key.above_low ? ", at most " : " to ") + high;
}

bool is_name(std::string_view text) {
  if (text.empty() || text.size() > kLongestName) return false;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!letter && std::string_view("._-=,+").find(c) == std::string_view::npos) return false;
  }
  return true;
}

bool is_allowed_text(const Key& key, const std::string& text) {
  if (text.find('\0') != std::string::npos) return false;
  if (key.kind == Kind::kText && text.find_first_of("\r\n") != std::string::npos) return false;
  if (key.kind == Kind::kName) return is_name(text);
  if (key.kind == Kind::kChoice) return choice_index(key.choices, text).has_value();
  return key.kind != Kind::kPath || !text.empty();
}

}  // namespace

std::optional<std::size_t> choice_index(std::string_view choices, std::string_view word) {
  const auto words = base::split(choices, ' ');
  const auto found = std::ranges::find(words, word);
  return found == words.end() ? std::nullopt : std::optional(static_cast<std::size_t>(found - words.begin()));
}

bool is_plain(Kind kind) {
  return kind != Kind::kWords && kind != Kind::kLines && kind != Kind::kVariables && kind != Kind::kOptions &&
         kind != Kind::kPatterns && kind != Kind::kSweep;
}

std::string print(const Key& key, const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* real = std::get_if<double>(&value)) return print_real(*real);
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  const auto number = std::get<std::int64_t>(value);
  if (key.kind == Kind::kDuration) return base::print_duration_ms(number);
  if (key.kind == Kind::kSize) return base::print_size_bytes(number);
  return std::to_string(number);
}

std::optional<Value> parse(const Key& key, std::string_view text) {
  switch (key.kind) {
    case Kind::kWhole:
      return as_value(base::whole_number<std::int64_t>(text));
    case Kind::kReal:
      return as_value(base::real_number(text));
    case Kind::kFlag:
      if (text != "true" && text != "false") return std::nullopt;
      return text == "true";
    case Kind::kDuration:
      return as_value(base::parse_duration_ms(text));
    case Kind::kSize:
      return as_value(base::parse_size_bytes(text));
    default:
      return std::string(text);
  }
}

std::optional<Value> as_kind(const Key& key, const Value& value) {
  const auto* whole = std::get_if<std::int64_t>(&value);
  switch (key.kind) {
    case Kind::kWhole:
    case Kind::kDuration:
    case Kind::kSize:
      return whole != nullptr ? std::optional(value) : std::nullopt;
    case Kind::kReal:
      if (whole != nullptr) return static_cast<double>(*whole);
      return std::holds_alternative<double>(value) ? std::optional(value) : std::nullopt;
    case Kind::kFlag:
      return std::holds_alternative<bool>(value) ? std::optional(value) : std::nullopt;
    default:
      return std::holds_alternative<std::string>(value) ? std::optional(value) : std::nullopt;
  }
}

std::string wanted(const Key& key) {
  const auto low = static_cast<std::int64_t>(key.low), high = static_cast<std::int64_t>(key.high);
  switch (key.kind) {
    case Kind::kName:
      return "1 to " + std::to_string(kLongestName) + " letters, digits and any of . _ - = , +";
    case Kind::kPath:
      return "a path";
    case Kind::kWhole:
      return "a whole number" + range(key, std::to_string(low), std::to_string(high));
    case Kind::kReal:
      return "a number" + range(key, print_real(key.low), print_real(key.high));
    case Kind::kFlag:
      return "true or false";
    case Kind::kChoice:
      return quoted_choices(key.choices);
    case Kind::kDuration:
      return "a duration such as 12h, 30m, 90s, 500ms or 1h30m," +
             range(key, base::print_duration_ms(low), base::print_duration_ms(high));
    case Kind::kSize:
      return "a size such as 16MiB," + range(key, base::print_size_bytes(low), base::print_size_bytes(high));
    case Kind::kWords:
      return key.name == "after" ? "an array of jobs such as [\"12\", \"failed:13\"]"
                                 : "an array of texts such as [\"python3\", \"train.py\"]";
    case Kind::kLines:
      return "an array of texts of one line each";
    case Kind::kVariables:
      return "a table of NAME = text, number, true or false";
    case Kind::kOptions:
      return "a table of option = text, number or true";
    case Kind::kPatterns:
      return "a table of series = 'pattern'";
    case Kind::kSweep:
      return "a table of key = [value, ...]";
    case Kind::kText:
      break;
  }
  return "a text of one line";
}

bool allowed(const Key& key, const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return is_allowed_text(key, *text);
  if (std::holds_alternative<bool>(value)) return true;
  const auto* whole = std::get_if<std::int64_t>(&value);
  const double number = whole != nullptr ? static_cast<double>(*whole) : std::get<double>(value);
  return (key.above_low ? number > key.low : number >= key.low) && number <= key.high;
}

const Value* Values::find(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

bool awaits_config(const Table& table, const Values& values) {
  const bool is_family = std::ranges::find(table.keys, kPretrained, &Key::name) != table.keys.end();
  if (!is_family || values.text(kPretrained).empty()) return false;
  return std::ranges::any_of(table.keys,
                             [&](const Key& key) { return !key.standard.empty() && !values.has(key.name); });
}

void fill_defaults(Values& values, std::span<const Table* const> tables, std::uint64_t ranks) {
  for (const auto* table : tables) {
    if (awaits_config(*table, values)) continue;
    for (const auto& key : table->keys) {
      if (!key.standard.empty() && !values.has(key.name)) values.set(key.name, parse(key, key.standard).value());
    }
  }
  for (const auto* table : tables) {
    if (table->derive != nullptr && !awaits_config(*table, values)) table->derive(values, ranks);
  }
}

std::string multiples_near(std::int64_t value, std::int64_t unit) {
  const auto below = value / unit * unit;
  return "try " + (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(below + unit);
}

}  // namespace spec
