#include "cli/field_help.h"

#include "cli/text.h"
#include "spec/fields.h"

namespace cli {
namespace {

std::string default_of(const spec::Field& field) {
  if (!field.derived.empty()) return "(" + std::string(field.derived) + ")";
  if (field.standard.empty()) return "";
  const bool quoted = field.kind == spec::Kind::kChoice || field.kind == spec::Kind::kDuration ||
                      field.kind == spec::Kind::kSize || field.kind == spec::Kind::kText;
  return quoted ? "\"" + std::string(field.standard) + "\"" : std::string(field.standard);
}

std::string choices_of(const spec::Field& field) {
  if (field.choices.find(' ') == std::string_view::npos) return "";
  std::string text;
  for (const char c : field.choices) text += c == ' ' ? std::string(", ") : std::string(1, c);
  return " One of " + text + ".";
}

}  // namespace

std::string field_help(std::size_t width) {
  std::string text, table;
  for (const auto& field : spec::fields()) {
    const auto dot = field.key.find('.');
    const auto inside = dot == std::string_view::npos ? std::string() : std::string(field.key.substr(0, dot));
    if (field.kind == spec::Kind::kVariables) {
      text += "[" + std::string(field.key) + "]\n  NAME = \"value\"\n";
    } else if (field.kind == spec::Kind::kSweep) {
      text += "[sweep]\n  KEY = [value, ...]\n";
    } else if (field.kind == spec::Kind::kOptions) {
      text += "[" + std::string(field.key) + "]\n  OPTION = \"value\"\n";
    } else {
      if (inside != table) text += "[" + inside + "]\n";
      table = inside;
      const auto standard = default_of(field);
      text += (inside.empty() ? "" : "  ") + std::string(inside.empty() ? field.key : field.key.substr(dot + 1));
      text += (standard.empty() ? "" : " = " + standard) + "\n";
    }
    for (const auto& line : wrapped(std::string(field.meaning) + choices_of(field), width - 6)) {
      text += "      " + line + "\n";
    }
  }
  return text;
}

}  // namespace cli
