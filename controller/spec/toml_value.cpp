#include "spec/toml_value.h"

#include <sstream>

namespace spec {
namespace {

constexpr std::size_t kLongestShown = 120;

bool takes_text(const Field* field) {
  return field != nullptr && (field->kind == Kind::kText || field->kind == Kind::kName || field->kind == Kind::kPath ||
                              field->kind == Kind::kChoice || field->kind == Kind::kDuration);
}

std::optional<Value> value_of_text(const Field& field, const std::string& text) {
  switch (field.kind) {
    case Kind::kText:
    case Kind::kName:
    case Kind::kPath:
    case Kind::kChoice:
    case Kind::kDuration:
    case Kind::kSize:
      return parse(field, text);
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<Value> value_of(const Field& field, const toml::node& node) {
  if (const auto* text = node.as_string()) return value_of_text(field, text->get());
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
  for (const char c : text) {
    if (out.size() >= kLongestShown) return out + "...";
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7f ? ' ' : c;
  }
  return out;
}

std::string shown(const toml::node& node) {
  if (const auto* text = node.as_string()) return shown(std::string_view(text->get()));
  static constexpr Field kNumber{.key = "", .path = "", .kind = Kind::kReal};
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

void insert_text(toml::table& table, std::string_view key, const Field* field, const std::string& text) {
  if (text.find_first_of("\r\n") == std::string::npos) {
    try {
      auto parsed = toml::parse("value = " + text);
      auto* value = parsed.get("value");
      if (parsed.size() == 1 && value != nullptr && (!takes_text(field) || value->is_string())) {
        table.insert_or_assign(key, std::move(*value));
        return;
      }
    } catch (const toml::parse_error&) {
      // No TOML value: a text.
    }
  }
  table.insert_or_assign(key, text);
}

}  // namespace spec
