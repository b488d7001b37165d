#include "spec/jobfile/toml_value.h"

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "base/words.h"

namespace jobfile {
namespace {

constexpr std::size_t kLongestShown = 120;

bool takes_text(const Key& field) {
  return field.kind == Kind::kText || field.kind == Kind::kName || field.kind == Kind::kPath ||
         field.kind == Kind::kChoice || field.kind == Kind::kDuration;
}

}  // namespace

std::optional<Value> value_of(const Key& field, const toml::node& node) {
  if (const auto* text = node.as_string()) {
    return takes_text(field) || field.kind == Kind::kSize ? parse(field, text->get()) : std::nullopt;
  }
  if (const auto* flag = node.as_boolean())
    return field.kind == Kind::kFlag ? std::optional<Value>(flag->get()) : std::nullopt;
  if (const auto* whole = node.as_integer()) {
    if (field.kind == Kind::kReal) return static_cast<double>(whole->get());
    if (field.kind == Kind::kWhole || field.kind == Kind::kSize) return whole->get();
  }
  if (const auto* real = node.as_floating_point(); real != nullptr && field.kind == Kind::kReal) return real->get();
  return std::nullopt;
}

std::string shown(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    if (out.size() >= kLongestShown) return out + "...";
    const auto size = base::character_bytes(text);
    const auto byte = static_cast<unsigned char>(text.front());
    if (size == 0) {
      char escaped[5];
      std::snprintf(escaped, sizeof escaped, "\\x%02X", static_cast<unsigned>(byte));
      out += escaped;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += ' ';
    } else {
      out += text.substr(0, size);
    }
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return out;
}

std::string shown(const toml::node& node) {
  if (const auto* text = node.as_string()) return shown(std::string_view(text->get()));
  static constexpr Key kNumber{.kind = Kind::kReal};
  if (const auto* real = node.as_floating_point()) return print(kNumber, real->get());
  std::ostringstream out;
  node.visit([&](const auto& value) {
    if constexpr (toml::is_table<decltype(value)>) {
      out << toml::default_formatter(value, toml::format_flags::none);
    } else {
      out << toml::default_formatter(value);
    }
  });
  return shown(std::string_view(out.str()));
}

std::string toml_text(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += std::string("\\") + c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04X", static_cast<unsigned>(byte));
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string syntax_problem(std::string_view description) {
  struct Slip {
    std::string_view where, what;  // parts of the parser's message
    std::string_view ours;
  };
  // The first match counts.
  static constexpr Slip kSlips[]{
      {"", "could not determine value type", "this is not a value; a text needs quotes"},
      {"", "expected 'true'", "this is not a value; write true or false in small letters, and texts in quotes"},
      {"", "expected 'false'", "this is not a value; write true or false in small letters, and texts in quotes"},
      {"", "expected value, saw", "there is no value after =; write one, a text in quotes"},
      {"root table", "expected keys", "want key = value or a [table] here; a key with other characters needs quotes"},
      {"table header", "expected ']'", "the table's name does not end; write ] after it"},
      {"table header", "end-of-file", "the table's name does not end; write ] after it"},
      {"table header", "cannot redefine", "this table is there already; put all of its keys in one place"},
      {"", "cannot redefine", "this key is given twice; remove one of them"},
      {"string", "control characters", "the text does not end on its line; close the quotes on the same line"},
      {"string", "unknown escape sequence",
       "the backslash begins no known escape; write two of them, or put the text in single quotes"},
      {"array", "expected comma",
       "a comma or ] is missing in the array; write a comma between values, and ] after the last"},
      {"array", "end-of-file", "the array does not end; write ] after its last value"},
      {"", "leading zero", "a number can't begin with 0; leave it out, or write a text in quotes"},
      {"key-value pair", "expected '='", "there is no = after the key; write key = value"},
      {"", "expected a comment or whitespace",
       "there is more text after the value; write one key or [table] on each line"},
      {"inline table", "",
       "the { } does not end on its line; close it there, or write a [table] with one key on each line"},
      {"integer", "expected digit", "this is not a number; a text such as \"12h\" needs quotes"},
      {"floating-point", "expected decimal digit", "a number needs digits on both sides of its point, such as 0.5"},
      {"", "is not representable", "the number is too large; write a smaller number"},
      {"", "could not be interpreted", "the number is too large; write a smaller number"},
      {"", "invalid utf-8", "the file is not UTF-8; save the file as UTF-8"},
      {"string", "", "the text does not end; close the quotes on the same line"},
  };
  for (const auto& [where, what, ours] : kSlips) {
    const bool there =
        where.empty() || description.substr(0, description.find(':')).find(where) != std::string_view::npos;
    if (there && description.find(what) != std::string_view::npos) return "not TOML: " + std::string(ours);
  }
  return "not TOML: " + shown(description);
}

void insert_text(toml::table& table, std::string_view key, const Key* field, const std::string& text) {
  if (text.find_first_of("\r\n") == std::string::npos) {
    try {
      auto parsed = toml::parse("value = " + text);
      auto* value = parsed.get("value");
      if (parsed.size() == 1 && value != nullptr && (field == nullptr || !takes_text(*field) || value->is_string())) {
        table.insert_or_assign(key, std::move(*value));
        return;
      }
    } catch (const toml::parse_error&) {
      // Not a TOML value, so it is a text.
    }
  }
  table.insert_or_assign(key, text);
}

}  // namespace jobfile
